"""Drives kcat for the black-box suite: one command line for all clients, JSON lines as output (tests/clients/README.md).

kcat chooses the partition by the key and does not tell what became of each record: when it succeeds, all are delivered."""

import argparse
import ctypes
import json
import re
import signal
import subprocess
import sys
import threading
import time


def line(**fields):
    print(json.dumps(fields), flush=True)


def report_version():
    text = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    kcat = re.search(r"Version (\S+)", text)[1]
    librdkafka = re.search(r"librdkafka (\S+)", text)[1]
    line(event="client", library="kcat", version=f"{kcat}, librdkafka {librdkafka}")


def die_with_this():
    """A suite that kills a client means kcat: prctl(PR_SET_PDEATHSIG, SIGKILL)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def produce(job):
    command = ["kcat", "-P", "-b", job.bootstrap, "-t", job.topic, "-K", ":", "-X", f"acks={job.acks}"]
    if job.compression:
        command += ["-z", job.compression]
    if job.idempotence == "off":
        command += ["-X", "enable.idempotence=false"]
    if job.retries is not None:
        command += ["-X", f"message.send.max.retries={job.retries}"]
    kcat = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, preexec_fn=die_with_this)
    started = time.monotonic()
    for n in range(job.count):
        if job.rate:
            time.sleep(max(0, started + n / job.rate - time.monotonic()))
        kcat.stdin.write(f"key-{job.first + n}:value-{job.first + n}\n")
        if job.rate:
            kcat.stdin.flush()
    kcat.stdin.close()
    if kcat.wait() != 0:
        return 0, f"kcat ended with {kcat.returncode}"
    for index in range(job.first, job.first + job.count):
        line(event="delivered", index=index, partition=-1, offset=-1)
    return job.count, None


def consume(job):
    record = '{"event":"record","partition":%p,"offset":%o,"key":"%k","value":"%s"}\n'
    command = ["kcat", "-u", "-b", job.bootstrap, "-f", record, "-X", "auto.offset.reset=earliest"]
    command += ["-G", job.group, job.topic] if job.group else ["-C", "-t", job.topic]
    kcat = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_this)

    def end():
        sys.stdin.buffer.read()
        kcat.send_signal(signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    timer = threading.Timer(job.timeout_ms / 1000, kcat.send_signal, [signal.SIGTERM])
    timer.daemon = True
    timer.start()
    done = 0
    for text in kcat.stdout:
        print(text, end="", flush=True)
        done += 1
        if done == job.count:
            kcat.send_signal(signal.SIGTERM)
    code = kcat.wait()
    return done, f"kcat ended with {code}" if code not in (0, -signal.SIGTERM) else None


def admin(job):
    kcat = ["kcat", "-b", job.bootstrap]
    listed = subprocess.run([*kcat, "-L", "-J"], capture_output=True, text=True, check=True).stdout
    line(event="admin", verb="list-topics", names=[topic["topic"] for topic in json.loads(listed)["topics"]])

    def offsets(timestamp):
        asked = [option for p in range(job.partitions) for option in ("-t", f"{job.topic}:{p}:{timestamp}")]
        answers = subprocess.run([*kcat, "-Q", *asked], capture_output=True, text=True, check=True).stdout
        found = dict(re.findall(r"\[(\d+)\] offset (-?\d+)", answers))
        return [int(found[str(partition)]) for partition in range(job.partitions)]

    line(event="admin", verb="offsets", first=offsets(-2), last=offsets(-1))
    return 0, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["produce", "consume", "admin"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--retries", type=int)
    parser.add_argument("--acks", default="all")
    parser.add_argument("--compression")
    parser.add_argument("--idempotence", default="off")
    parser.add_argument("--group", default="")
    parser.add_argument("--timeout-ms", type=int, default=60000)
    job = parser.parse_args()
    report_version()
    try:
        done, error = {"produce": produce, "consume": consume, "admin": admin}[job.verb](job)
    except (subprocess.CalledProcessError, KeyError) as failure:
        done, error = 0, f"{failure} {getattr(failure, 'stderr', '')}"
    if error:
        line(event="failed", index=-1, error=error)
    line(event="end", done=done, failed=1 if error else 0)
    sys.exit(1 if error or (job.verb != "admin" and done < job.count) else 0)


main()
