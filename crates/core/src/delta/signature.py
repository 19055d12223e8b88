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
say("signature:%d" % found.st_size)
left = found.st_size
with os.fdopen(handle, "rb", max(block, 1 << 20)) as file:
    while left:
        data = file.read(min(block, left))
        if not data:
            sys.exit(1)
        left -= len(data)
        out.write(struct.pack(">I", zlib.adler32(data)) + hashlib.sha256(data).digest()[:16])
say("end")
