"""Runs one command with a time limit, and leaves nothing of it behind."""
import os
import signal
import subprocess
import threading
import time
import uuid

# Launchers give their workers a process session of their own, so that killing the group leaves orphans on the GPUs. This
# variable is inherited by all of them and tells them from everything else on the machine.
MARK = "PROGRAM_BENCH_RUN"


def marked(mark):
    """Processes of this user that carry the mark."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                if wanted in f.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:  # gone, or another user's
            pass
    return found


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def run(words, env, timeout, err_path, on_line, grace=45.0, linger=15.0):
    """(exit code, seconds, timed out). Each line of standard output goes to on_line; standard error goes to a file.

    At the limit the command gets SIGTERM (torchrun takes up to 30 s to end its workers), later everything that carries its
    mark is killed. What still lives `linger` after the command's own end is killed too: a daemon that `dynamiccld run`
    started needs a moment to write its store.
    """
    mark = uuid.uuid4().hex
    started = time.monotonic()
    with open(err_path, "wb") as err:
        process = subprocess.Popen(words, env={**env, MARK: mark}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
                                   start_new_session=True)

        def pump():
            for line in process.stdout:
                on_line(line.decode(errors="replace"))

        reader = threading.Thread(target=pump, daemon=True)
        reader.start()
        timed_out = False
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out, linger = True, 0
            send([process.pid], signal.SIGTERM)
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                pass
        except BaseException:  # the user wants an end: now
            linger = 0
            raise
        finally:
            seconds = time.monotonic() - started
            until = time.monotonic() + linger
            while marked(mark) and time.monotonic() < until:
                time.sleep(0.05)
            send(marked(mark), signal.SIGKILL)
            process.wait()
            reader.join(10)
            if not reader.is_alive():
                process.stdout.close()
    return process.returncode, seconds, timed_out
