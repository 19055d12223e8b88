import os, re, stat, sys
out = sys.stdout.buffer
words = [os.fsencode(word) for word in sys.argv[1:]]
follow = words[0] == b"follow"
extent = words[1]
lone = words[2] if extent == b"lone" else None
names = {word[1:] for word in words[2:] if word[:1] == b"n"}
paths = {word[1:] for word in words[2:] if word[:1] == b"p"}
staging = re.compile(br"\.rsmcp-sync-[0-9a-f]{32}-[0-9]+\Z")
order = bytes.maketrans(b"/\x01", b"\x01/")
letters = {stat.S_IFREG: b"f", stat.S_IFDIR: b"d", stat.S_IFLNK: b"l", stat.S_IFIFO: b"p",
           stat.S_IFSOCK: b"s", stat.S_IFBLK: b"b", stat.S_IFCHR: b"c"}
def letter(found):
    return letters.get(stat.S_IFMT(found.st_mode), b"?")
def record(path, found):
    end, target = b"-", b""
    if stat.S_ISLNK(found.st_mode):
        try:
            end = letter(os.stat(path))
        except OSError:
            end = b"N"
        target = os.readlink(path)
    seconds, nanoseconds = divmod(found.st_mtime_ns, 1000000000)
    fields = "%o %d %d.%09d %d %d %d" % (found.st_mode & 0o7777, found.st_size, seconds, nanoseconds,
                                         found.st_nlink, found.st_ino, found.st_dev)
    out.write(path + b"//" + letter(found) + b" " + end + b" " + fields.encode() + b"//" + target + b"\0")
def listing(path):
    try:
        return iter(sorted(os.listdir(path or b"."), key=lambda name: name.translate(order)))
    except OSError:
        out.write(b"//unreadable " + (path or b".") + b"\0")
        return iter(())
top = os.stat(".")
out.write(b"//device %d\0//mode %o\0" % (top.st_dev, top.st_mode & 0o7777))
levels = [(b"", listing(b"") if lone is None else iter((lone,)), (top.st_dev, top.st_ino))]
while levels:
    above, rest, _ = levels[-1]
    name = next(rest, None)
    if name is None:
        levels.pop()
        continue
    path = above + b"/" + name if above else name
    try:
        found = os.lstat(path)
        if follow and stat.S_ISLNK(found.st_mode):
            try:
                found = os.stat(path)
            except OSError:
                pass
        record(path, found)
    except OSError:
        out.write(b"//vanished " + path + b"\0")
        continue
    if extent != b"tree" or not stat.S_ISDIR(found.st_mode) or name in names or path in paths or staging.match(name):
        continue
    this = (found.st_dev, found.st_ino)
    if any(this == other for _, _, other in levels):
        out.write(b"//loop " + path + b"\0")
        continue
    levels.append((path, listing(path), this))
out.flush()
