"""Starts a program with less: in namespaces of its own, with few folders, and within resource limits.

Theory of operation. This file is run by itself (`python -I -S confined_program.py SPEC PROGRAM ARGUMENTS`), so it imports
nothing of the package. It takes everything away from its own process and then becomes the program. Whatever cannot be
taken away ends it: the program never runs with more than it should have.

- A user namespace, so that it needs no root. A mount namespace whose root is an empty file system in memory: the
  system's folders and the readable ones are mounted read-only, the writable ones as they are, and nothing else exists,
  neither the home folder nor the sockets in /run. A network namespace with nothing but a loopback interface, unless the
  network is allowed. A namespace for System V IPC. A session keyring without keys.
- A Landlock domain: from inside, processes outside can neither be traced nor read through /proc, and since Landlock's
  version 6 not be sent signals.
- No capabilities, and no way to get any (`no_new_privs`).
- Resource limits, also without confinement.

With `probe`, the program is only looked for.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path

FAILED = 126
TMPFS = b"size=256m,mode=0755"
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/sys",
    "/proc",
)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LIMITS = {
    "memory": resource.RLIMIT_DATA,
    "processes": resource.RLIMIT_NPROC,
    "cpu_seconds": resource.RLIMIT_CPU,
    "open_files": resource.RLIMIT_NOFILE,
}

# <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>, <linux/landlock.h>
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x8000000, 0x10000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 2, 4, 4096, 16384, 1 << 18, 2
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = -100, 0x8000, 1, 2, 4
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
MAKE_BLOCK, SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 11, 1, 2
SYS_MOUNT_SETATTR, SYS_CREATE_RULESET, SYS_RESTRICT_SELF = 442, 444, 446
JOIN_SESSION_KEYRING = 1
# pivot_root and keyctl
SYSCALLS = {
    "x86_64": (155, 250),
    "aarch64": (41, 219),
    "riscv64": (41, 219),
    "ppc64le": (203, 271),
    "s390x": (217, 280),
}

libc = ctypes.CDLL(None, use_errno=True)


class Impossible(Exception):
    """What cannot be taken away, and what to do about it."""


def check(done: int, what: str, fix: str = "") -> int:
    if done < 0:
        number = ctypes.get_errno()
        raise Impossible(f"{what}: {os.strerror(number)}{f'; {fix}' if fix else ''}")
    return done


def limit_resources(limits: dict[str, int]) -> None:
    for name, wanted in limits.items():
        _, most = resource.getrlimit(LIMITS[name])
        amount = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(LIMITS[name], (amount, amount))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def enter_namespaces(network: bool) -> None:
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | (0 if network else CLONE_NEWNET)
    fix = (
        "allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
        "kernel.apparmor_restrict_unprivileged_userns), or use a container instead (docs/confinement.md)"
    )
    check(libc.unshare(flags), "user namespaces are not allowed here", fix)
    try:
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", "ascii")
    except OSError as error:
        raise Impossible(f"user namespaces are not allowed here: {error.strerror}; {fix}") from None
    if not network:
        raise_loopback()


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lookup:
        # SIOCSIFFLAGS with IFF_UP and IFF_RUNNING
        fcntl.ioctl(lookup, 0x8914, struct.pack("16sh14x", b"lo", 0x41))


def build_root(read: list[str], writable: list[str], home: str) -> None:
    """Make a root with few folders, and enter it."""
    folders = {Path(path): False for path in (*SYSTEM, *read) if os.path.lexists(path)}
    folders |= {Path(path): True for path in writable}
    resolver = Path("/etc/resolv.conf").resolve()
    if resolver.exists():
        folders.setdefault(resolver, False)
    # Opened first: the new root hides some of them.
    sources = {path: os.open(path, os.O_PATH) for path in folders if not path.is_symlink()}
    devices = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES if Path("/dev", name).exists()}
    root = Path("/tmp")  # noqa: S108 - in a mount namespace of our own
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mounts cannot be made private")
    check(libc.mount(b"tmpfs", bytes(root), b"tmpfs", MS_NOSUID | MS_NODEV, TMPFS), "a root cannot be mounted")
    # Parents first, so that nothing hides what is below it.
    for path in sorted(folders, key=lambda path: len(path.parts)):
        target = root / path.relative_to("/")
        if path in sources:
            bind(sources[path], target, 0 if folders[path] else MOUNT_ATTR_RDONLY)
        elif not os.path.lexists(target):
            target.symlink_to(path.readlink())
    for name, source in devices.items():
        bind(source, root / "dev" / name, 0)
    for name in ("dev/shm", "tmp", "run", "var/tmp", home.strip("/") or "root", ".before"):
        (root / name).mkdir(parents=True, exist_ok=True)
    done = libc.syscall(find_syscalls()[0], bytes(root), bytes(root / ".before"))
    check(done, "the root cannot be changed")
    os.chdir("/")
    check(libc.umount2(b"/.before", MNT_DETACH), "the previous root cannot be removed")
    Path("/.before").rmdir()


def find_syscalls() -> tuple[int, int]:
    machine = os.uname().machine
    if machine not in SYSCALLS:
        raise Impossible(f"processors of the kind {machine} are not supported; use a container instead")
    return SYSCALLS[machine]


def bind(source: int, target: Path, attributes: int) -> None:
    path = Path(f"/proc/self/fd/{source}")
    if not target.exists():
        if path.is_dir():
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch(0o600)
    where = bytes(target)
    check(libc.mount(bytes(path), where, None, MS_BIND | MS_REC, None), f"{target} cannot be mounted")
    if not path.is_char_device():
        attributes |= MOUNT_ATTR_NODEV
    changed = struct.pack("QQQQ", attributes | MOUNT_ATTR_NOSUID, 0, 0, 0)
    done = libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, where, AT_RECURSIVE, changed, len(changed))
    check(done, f"{target} cannot be made read-only", "Linux 5.12 or later is needed")
    os.close(source)


def leave_keyring() -> None:
    """Begin a new session keyring: that of the user may have tickets and other secrets."""
    joined = libc.syscall(find_syscalls()[1], JOIN_SESSION_KEYRING, None)
    # Without keyrings in the kernel, or with a filter around us that forbids them, the program has none either.
    if joined < 0 and ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        check(joined, "the keyring of the user cannot be left")


def drop_privileges() -> None:
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "privileges cannot be dropped")
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    abi = check(
        libc.syscall(SYS_CREATE_RULESET, None, 0, 1),
        "Landlock is missing",
        "use Linux 5.13 or later with Landlock enabled (the boot parameter lsm=landlock,…), or a container instead",
    )
    scopes = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if abi >= 6 else 0
    # Any ruleset makes a domain, whose processes cannot reach into others; the mounts decide about files.
    attributes = struct.pack("QQQ", MAKE_BLOCK, 0, scopes)[: 24 if abi >= 6 else 8]
    ruleset = check(libc.syscall(SYS_CREATE_RULESET, attributes, len(attributes), 0), "Landlock cannot be used")
    check(libc.syscall(SYS_RESTRICT_SELF, ruleset, 0), "Landlock cannot be used")
    os.close(ruleset)


def main() -> None:
    spec, command, parent = json.loads(sys.argv[1]), sys.argv[2:], os.getppid()
    try:
        if spec.get("confine") is not None:
            confine = spec["confine"]
            enter_namespaces(confine["network"])
            build_root(confine["read"], confine["write"], os.environ.get("HOME", ""))
            if spec.get("cwd"):
                os.chdir(spec["cwd"])
            limit_resources(spec.get("resources", {}))
            leave_keyring()
            drop_privileges()
        else:
            limit_resources(spec.get("resources", {}))
    except (Impossible, OSError, ValueError) as problem:
        sys.exit(fail(str(problem)))
    if spec.get("probe"):
        if command and not os.access(command[0], os.X_OK):
            sys.exit(fail(describe_hidden(command[0], "not found")))
        return
    if sys.platform == "linux":
        # As `setpriv --pdeathsig TERM` does for other programs; entering a namespace has cleared it.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent and parent != 1:
            sys.exit(FAILED)
    try:
        os.execv(command[0], command)  # noqa: S606 - the command of the configuration
    except OSError as error:
        reason = error.strerror or "it is not a program"
        hidden = describe_hidden(command[0], reason)
        sys.exit(fail(hidden) if spec.get("confine") else f"{command[0]} cannot be started: {reason}")


def describe_hidden(program: str, reason: str) -> str:
    hint = "add the folder that it is in, those that its symbolic links point to, and those it needs to `confine.read`"
    return f"{program} cannot be started: {reason}; {hint}"


def fail(problem: str) -> int:
    sys.stderr.write(f"not started, because it cannot be confined: {problem}\n")
    return FAILED


if __name__ == "__main__":
    main()
