import hashlib, os, stat, struct, sys, zlib
path, block, mark = os.fsencode(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
out = sys.stdout.buffer
def say(words):
    out.write(("RSMCP:%s:%s\n" % (mark, words)).encode())
    out.flush()
try:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise OSError
except OSError:
    say("signature:none")
    sys.exit(1)
size = found.st_size
say("signature:%d:%d.%d.%d" % (size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns))
span = block * max(1, (1 << 20) // block)
count = -(-size // span)
# Memory that was used before is there at once; fresh memory takes longer than the reading.
room = memoryview(bytearray(min(span, size)))
def fill(view, offset):
    if hasattr(os, "preadv"):
        return os.preadv(handle, [view], offset)
    data = os.pread(handle, len(view), offset)
    view[:len(data)] = data
    return len(data)
def records(number):
    offset = number * span
    data = room[:min(span, size - offset)]
    done = 0
    while done < len(data):
        read = fill(data[done:], offset + done)
        if not read:
            return None
        done += read
    told = []
    for at in range(0, len(data), block):
        part = data[at:at + block]
        told.append(struct.pack(">I", zlib.adler32(part)) + hashlib.sha256(part).digest()[:16])
    return b"".join(told)
# Threads would wait for each other at every block; processes do not.
workers = max(1, min(4, os.cpu_count() or 1, count))
pipes = []
for first in range(workers if count else 0):
    reader, writer = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            for pipe in pipes:
                pipe.close()
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                for number in range(first, count, workers):
                    told = records(number)
                    if told is None:
                        break
                    pipe.write(told)
                    pipe.flush()
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    pipes.append(os.fdopen(reader, "rb"))
for number in range(count):
    blocks = -(-min(span, size - number * span) // block)
    told = pipes[number % workers].read(blocks * 20)
    if len(told) != blocks * 20:
        sys.exit(1)
    out.write(told)
    out.flush()
say("end")
