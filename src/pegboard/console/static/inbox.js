// What waits for the person who is signed in.

export function inbox() {
  return null;
}
