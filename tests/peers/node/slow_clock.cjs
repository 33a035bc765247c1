// Makes each timer of a program ten times as long: `node --require slow_clock.cjs PROGRAM`.
const SLOWER = 10;
const { setTimeout } = globalThis;
const abortAfter = AbortSignal.timeout;

globalThis.setTimeout = (callback, delay, ...rest) => setTimeout(callback, delay * SLOWER, ...rest);
AbortSignal.timeout = (delay) => abortAfter.call(AbortSignal, delay * SLOWER);
