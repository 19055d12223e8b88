use strict;
use warnings;
binmode STDOUT;
my $follow = shift(@ARGV) eq "follow";
my $extent = shift(@ARGV);
my $lone = $extent eq "lone" ? shift(@ARGV) : undef;
my (%names, %paths);
for my $word (@ARGV) {
    my $rest = substr($word, 1);
    if (substr($word, 0, 1) eq "n") { $names{$rest} = 1 } else { $paths{$rest} = 1 }
}
my %letters = (0100000 => "f", 0040000 => "d", 0120000 => "l", 0010000 => "p", 0140000 => "s", 0060000 => "b", 0020000 => "c");
sub letter { return $letters{$_[0] & 0170000} || "?" }
sub listing {
    my ($path) = @_;
    my $handle;
    if (!opendir($handle, $path eq "" ? "." : "./$path")) {
        print "//unreadable ", ($path eq "" ? "." : $path), "\0";
        return [];
    }
    my @all;
    while (defined(my $name = readdir($handle))) {
        next if $name eq "." || $name eq "..";
        (my $key = $name) =~ tr/\001\//\/\001/;
        push @all, [$key, $name];
    }
    closedir($handle);
    return [map { $_->[1] } sort { $a->[0] cmp $b->[0] } @all];
}
my @top = stat(".");
printf "//device %s\0//mode %o\0", $top[0], $top[2] & 07777;
my @levels = (["", defined($lone) ? [$lone] : listing(""), 0, "$top[0]:$top[1]"]);
while (@levels) {
    my $level = $levels[-1];
    if ($level->[2] >= @{$level->[1]}) { pop @levels; next }
    my $name = $level->[1][$level->[2]++];
    my $path = $level->[0] eq "" ? $name : "$level->[0]/$name";
    my @found = lstat("./$path");
    my ($end, $target) = ("-", "");
    if (@found && letter($found[2]) eq "l") {
        my @beyond = stat("./$path");
        if ($follow && @beyond) { @found = @beyond }
        else {
            $end = @beyond ? letter($beyond[2]) : "N";
            $target = readlink("./$path");
        }
    }
    if (!@found || !defined($target)) { print "//vanished $path\0"; next }
    printf "%s//%s %s %o %.0f %d %d %s %s//%s\0", $path, letter($found[2]), $end, $found[2] & 07777, $found[7], $found[9], $found[3], $found[1], $found[0], $target;
    next if $extent ne "tree" || letter($found[2]) ne "d" || $names{$name} || $paths{$path};
    next if $name =~ /\A\.rsmcp-sync-[0-9a-f]{32}-[0-9]+\z/;
    my $this = "$found[0]:$found[1]";
    if (grep { $_->[3] eq $this } @levels) { print "//loop $path\0"; next }
    push @levels, [$path, listing($path), 0, $this];
}
