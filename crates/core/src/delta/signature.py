import hashlib, os, stat, struct, sys, threading, zlib
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
span = block * max(1, (4 << 20) // block)
count = -(-size // span)
def records(number):
    offset = number * span
    left, pieces = min(span, size - offset), []
    while left:
        data = os.pread(handle, left, offset)
        if not data:
            return None
        pieces.append(data)
        left -= len(data)
        offset += len(data)
    data = memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    told = []
    for at in range(0, len(data), block):
        part = data[at:at + block]
        told.append(struct.pack(">I", zlib.adler32(part)) + hashlib.sha256(part).digest()[:16])
    return b"".join(told)
# Sums and hashes are made without the lock of the interpreter.
news, done, taken, is_over = threading.Condition(), {}, 0, False
def work():
    global taken
    while True:
        with news:
            number = taken
            taken += 1
        if number >= count or is_over:
            return
        try:
            told = records(number)
        except OSError:
            told = None
        with news:
            done[number] = told
            news.notify()
for _ in range(max(1, min(4, os.cpu_count() or 1, count))):
    threading.Thread(target=work, daemon=True).start()
for number in range(count):
    with news:
        while number not in done:
            news.wait()
        told = done.pop(number)
    if told is None:
        is_over = True
        sys.exit(1)
    out.write(told)
    out.flush()
say("end")
