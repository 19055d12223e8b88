import os, sys
w = os.environb[b"w"]
links = [(os.environb[b"k%d" % n], os.environb[b"r%d" % n]) for n in range(int(sys.argv[1]))]
last = None
for line in sys.stdin.buffer:
    seconds, nanoseconds, path = line.split()
    directory, name = os.path.split(bytes.fromhex(path.decode()))
    if directory != last:
        last, is_there = directory, False
        place = w + directory[1:]
        for link, real in links:
            if (directory + b"/").startswith(link + b"/"):
                place = real + directory[len(link):]
        place = place or b"/"
        try:
            os.chdir(place)
            is_there = os.getcwdb() == place
        except OSError:
            pass
    if is_there:
        try:
            time = int(seconds) * 1000000000 + int(nanoseconds)
            os.utime(name, ns=(os.lstat(name).st_atime_ns, time), follow_symlinks=False)
        except OSError:
            pass
