import errno, hashlib, os, signal, stat, struct, sys, zlib
old_path, new_path, mark = os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2]), sys.argv[3]
block, size, mode, mtime = int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6], 8), int(sys.argv[7])
source, out = sys.stdin.buffer, sys.stdout.buffer
# Room that is left to others who write there meanwhile.
margin = 64 << 20
class Stop(Exception):
    pass
def say(words):
    out.write(("RSMCP:%s:%s\n" % (mark, words)).encode())
    out.flush()
def fill(view, offset):
    if hasattr(os, "preadv"):
        # Memory that was used before is there at once; fresh memory takes longer than the reading.
        return os.preadv(old, [view], offset)
    data = os.pread(old, len(view), offset)
    view[:len(data)] = data
    return len(data)
def read(view, offset):
    done = 0
    while done < len(view):
        count = fill(view[done:], offset + done)
        if not count:
            raise Stop("old")
        done += count
def write(data, offset):
    while data:
        count = os.pwrite(new, data, offset)
        data, offset = data[count:], offset + count
def is_space(error):
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
def stamp():
    found = os.fstat(old)
    return b"%d.%d.%d" % (found.st_ino, found.st_mtime_ns, found.st_ctime_ns)

# Tells what stands in the old file, and puts the very bytes that it tells of into the new one: what then stays where
# it was is right there, whatever becomes of the old file.
span = block * max(1, (1 << 20) // block)
def records(number, room):
    data = room[:min(span, old_size - number * span)]
    read(data, number * span)
    told = []
    for at in range(0, len(data), block):
        part = data[at:at + block]
        told.append(struct.pack(">I", zlib.adler32(part)) + hashlib.sha256(part).digest()[:16])
    # Before it is told: whoever knows of it may have something else written over it.
    write(data, number * span)
    return b"".join(told)
def apart(work):
    child = os.fork()
    if child:
        children.append(child)
        return
    word = signal.SIGUSR1
    try:
        for number in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        work()
        word = None
    except OSError as error:
        if is_space(error):
            word = signal.SIGUSR2
    finally:
        # Whoever waits for more would wait for ever.
        if word and os.getppid() == main:
            os.kill(main, word)
        os._exit(1 if word else 0)
def broke_off(number, _frame):
    for other in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(other, signal.SIG_IGN)
    raise Stop("space" if number == signal.SIGUSR2 else "old")
def tell():
    count = -(-old_size // span)
    # Threads would wait for each other at every block; processes do not.
    workers = max(1, min(4, os.cpu_count() or 1, count))
    pipes = []
    for first in range(workers):
        reader, writer = os.pipe()
        def work():
            for pipe in pipes:
                os.close(pipe)
            os.close(reader)
            room = memoryview(bytearray(min(span, old_size)))
            for number in range(first, count, workers):
                told = records(number, room)
                while told:
                    told = told[os.write(writer, told):]
            # Some file systems say only here that it was too much.
            os.close(new)
        apart(work)
        os.close(writer)
        pipes.append(reader)
    def pass_on():
        os.close(new)
        streams = [os.fdopen(pipe, "rb") for pipe in pipes]
        for number in range(count):
            length = -(-min(span, old_size - number * span) // block) * 20
            told = streams[number % workers].read(length)
            if len(told) != length:
                raise Stop("old")
            out.write(told)
            out.flush()
        say("end")
    apart(pass_on)
    for pipe in pipes:
        os.close(pipe)

# Builds what does not stay where it was.
step = 1 << 18
def take(count):
    data = source.read(count)
    if len(data) != count:
        raise Stop("cut")
    return data
def within(offset, length):
    if offset + length > size:
        raise Stop("size")
def move(start, to, length, room):
    global moved
    within(to, length)
    while length:
        data = room[:min(length, step)]
        read(data, start)
        moved = zlib.adler32(data, moved)
        write(data, to)
        start, to, length = start + len(data), to + len(data), length - len(data)
def build():
    room = memoryview(bytearray(step))
    while True:
        letter = take(1)
        if letter == b"C":
            move(*struct.unpack(">QQQ", take(24)), room)
        elif letter == b"D":
            to, length = struct.unpack(">QI", take(12))
            within(to, length)
            while length:
                data = take(min(length, step))
                write(data, to)
                to, length = to + len(data), length - len(data)
        elif letter == b"E":
            break
        else:
            raise Stop("cut")
    meant, length = struct.unpack(">IB", take(5))
    known = take(length)
    while children:
        if os.waitpid(children.pop(), 0)[1]:
            raise Stop("old")
    # What was moved was read again; nobody may have written into the old file since it was told.
    if moved != meant or known != stamp():
        raise Stop("hash")
    if os.fstat(new).st_size > size:
        os.ftruncate(new, size)
    if os.fstat(new).st_size != size:
        raise Stop("size")
    global made
    found = os.fstat(new)
    made = found.st_dev, found.st_ino
    os.fchmod(new, mode)
    os.utime(new, ns=(mtime, mtime))
    os.close(new)

moved, new, children, main = 1, None, [], os.getpid()
try:
    old = os.open(old_path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(old).st_mode):
        raise OSError
    old_size = os.fstat(old).st_size
    try:
        os.unlink(new_path)
    except FileNotFoundError:
        pass
    new = os.open(new_path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    free = os.fstatvfs(new)
    if free.f_bavail * free.f_frsize < max(old_size, size) + margin:
        raise OSError
except OSError:
    if new is not None:
        os.unlink(new_path)
    say("signature:none")
    sys.exit(1)
verdict = "ok"
try:
    say("signature:%d:%s" % (old_size, stamp().decode()))
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, broke_off)
    tell()
    build()
except Stop as stop:
    verdict = stop.args[0]
except OSError as error:
    verdict = "space" if is_space(error) else "failed:%d" % (error.errno or 0)
def clear():
    # Those that are ended here have nothing more to say.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    while children:
        os.kill(children[-1], signal.SIGKILL)
        os.waitpid(children.pop(), 0)
    if verdict != "ok":
        # The space is free before anybody hears of it.
        try:
            os.unlink(new_path)
            os.ftruncate(new, 0)
        except OSError:
            pass
try:
    clear()
except Stop:
    clear()
try:
    say("rebuild:" + verdict)
except OSError:
    pass
# While it is open here, the old file costs nobody time who gives its name to the new one; it goes when this ends. A new
# one that got no name by then goes too.
def too_late(_number, _frame):
    raise Stop("late")
signal.signal(signal.SIGALRM, too_late)
signal.alarm(600)
try:
    source.read(1)
except Stop:
    pass
try:
    found = os.lstat(new_path)
    if verdict == "ok" and (found.st_dev, found.st_ino) == made:
        os.unlink(new_path)
except OSError:
    pass
