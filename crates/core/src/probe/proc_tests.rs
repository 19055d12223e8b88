use rstest::rstest;

use super::super::samples::read;
use super::*;

#[rstest]
#[case::linux("0.31 0.27 0.18 2/415 9981", [Some(0.31), Some(0.27), Some(0.18)])]
#[case::sysctl("{ 1.20 1.30 1.40 }", [Some(1.2), Some(1.3), Some(1.4)])]
#[case::uptime_linux(
    " 10:11:12 up 9 days, 3:04, 2 users,  load average: 0.00, 0.01, 0.05",
    [Some(0.0), Some(0.01), Some(0.05)]
)]
#[case::uptime_mac(
    "10:11  up 9 days, 3:04, 2 users, load averages: 1.75 1.80 1.90",
    [Some(1.75), Some(1.8), Some(1.9)]
)]
#[case::not_a_number("NaN inf 1e300", [None, None, None])]
#[case::short("0.5", [Some(0.5), None, None])]
#[case::empty("", [None, None, None])]
#[case::absurd("99999999 1 -1", [None, Some(1.0), None])]
fn loads_are_read_from_every_form(#[case] body: &str, #[case] expected: [Option<f64>; 3]) {
    assert_eq!(read(&[("load", "0", body)], loads), expected);
}

#[rstest]
#[case::plain("16", "", Some(16))]
#[case::none("", "", None)]
#[case::zero("0", "", None)]
#[case::no_limit("16", "cpu max 100000\ncpu -1 100000", Some(16))]
#[case::whole_quota("16", "cpu 400000 100000", Some(4))]
#[case::part_of_a_processor("16", "cpu 50000 100000", Some(1))]
#[case::tightest_level("16", "cpu 800000 100000\ncpu 150000 100000\ncpu max 100000", Some(2))]
#[case::wider_than_the_machine("2", "cpu 800000 100000", Some(2))]
#[case::broken_quota("2", "cpu 100000 0\ncpu x y\ncpu 5", Some(2))]
#[case::misread("4294967295", "", None)]
fn processor_count_respects_the_quota(
    #[case] count: &str,
    #[case] cgroup: &str,
    #[case] expected: Option<u32>,
) {
    let sections = [("count", "0", count), ("cgroup", "0", cgroup)];
    assert_eq!(read(&sections, processor_count), expected);
}

#[rstest]
#[case::half("cpu  100 0 0 100\ncpu  150 0 0 150", Some(50.0))]
#[case::waiting_is_idle(
    "cpu  100 0 0 100 100 0 0 0 0 0\ncpu  110 0 0 110 180 0 0 0 0 0",
    Some(10.0)
)]
#[case::stolen_is_busy("cpu  0 0 0 0 0 0 0 0 0 0\ncpu  0 0 0 50 0 0 0 50 0 0", Some(50.0))]
#[case::guest_is_not_counted_twice(
    "cpu  0 0 0 0 0 0 0 0 0 0\ncpu  50 0 0 50 0 0 0 0 50 0",
    Some(50.0)
)]
#[case::one_sample("cpu  100 0 0 100", None)]
#[case::no_time_passed("cpu  1 1 1 1\ncpu  1 1 1 1", None)]
#[case::backwards("cpu  9 9 9 9\ncpu  1 1 1 1", None)]
#[case::waiting_shrank("cpu  0 0 0 10 10\ncpu  100 0 0 10 5", Some(100.0))]
#[case::not_proc("hello\nworld", None)]
#[case::overflow("cpu  18446744073709551615 1 1 1\ncpu  1 1 1 1", None)]
fn utilisation_is_the_busy_share_between_two_samples(
    #[case] body: &str,
    #[case] expected: Option<f64>,
) {
    assert_eq!(read(&[("stat", "0", body)], utilisation), expected);
}

fn megabytes(sections: &[(&str, &str, &str)]) -> [Option<u64>; 3] {
    let memory = read(sections, memory);
    [memory.total_mb, memory.used_mb, memory.free_mb]
}

const EIGHT_OF_TEN_FREE: &str = "MemTotal: 10240000 kB\nMemFree: 1 kB\nMemAvailable: 8192000 kB";

#[rstest]
#[case::none("", [Some(10_000), Some(2_000), Some(8_000)])]
#[case::looser_than_the_machine("memory 99999999999 5 5", [Some(10_000), Some(2_000), Some(8_000)])]
#[case::caches_are_free("memory 4194304000 3145728000 1048576000", [Some(4_000), Some(2_000), Some(2_000)])]
#[case::tightest_level(
    "memory 4194304000 1048576000 0\nmemory 6291456000 5767168000 0",
    [Some(4_000), Some(3_500), Some(500)]
)]
#[case::machine_has_less("memory 9437184000 0 0", [Some(9_000), Some(1_000), Some(8_000)])]
#[case::use_unknown("memory 4194304000 - -", [Some(4_000), None, None])]
#[case::zero_limit("memory 0 0 0", [Some(10_000), Some(2_000), Some(8_000)])]
fn memory_respects_the_cgroup_limit(#[case] cgroup: &str, #[case] expected: [Option<u64>; 3]) {
    let sections = [("meminfo", "0", EIGHT_OF_TEN_FREE), ("cgroup", "0", cgroup)];
    assert_eq!(megabytes(&sections), expected);
}

#[rstest]
#[case::old_kernel(
    "MemTotal: 10240000 kB\nMemFree: 1024000 kB\nBuffers: 1024000 kB\nCached: 1024000 kB",
    [Some(10_000), Some(7_000), Some(3_000)]
)]
#[case::free_unknown("MemTotal: 10240000 kB", [Some(10_000), None, None])]
#[case::total_unknown("MemAvailable: 10240000 kB", [None, None, None])]
#[case::more_free_than_there_is(
    "MemTotal: 1024 kB\nMemAvailable: 10240000 kB",
    [Some(1), Some(0), Some(1)]
)]
#[case::no_proc("", [None, None, None])]
fn memory_is_read_from_meminfo(#[case] body: &str, #[case] expected: [Option<u64>; 3]) {
    assert_eq!(megabytes(&[("meminfo", "0", body)]), expected);
}

#[test]
fn memory_is_read_from_sysctl_on_freebsd() {
    let body = "hw.physmem: 8589934592\nhw.pagesize: 4096\n\
        vm.stats.vm.v_free_count: 262144\nvm.stats.vm.v_inactive_count: 262144";
    let expected = [Some(8192), Some(6144), Some(2048)];
    assert_eq!(megabytes(&[("sysctl", "0", body)]), expected);
}

#[test]
fn memory_of_openbsd_has_a_total_only() {
    let body = "hw.physmem=8589934592\nhw.pagesize=4096";
    assert_eq!(
        megabytes(&[("sysctl", "1", body)]),
        [Some(8192), None, None]
    );
}

#[rstest]
#[case::gnu("/dev/vda1  20480 10240 10240  50% /", Some(20), Some(10), Some(50.0))]
#[case::spaces(
    "//nas/my share 20480 5120 15360 25% /mnt/a b",
    Some(20),
    Some(15),
    Some(25.0)
)]
#[case::over_full("/dev/ada0p2 20480 21000 -1600 108% /", Some(20), Some(0), Some(100.0))]
#[case::reserve("/dev/sda1 20480 9216 9216 50% /", Some(20), Some(9), Some(50.0))]
#[case::no_space_at_all("proc 0 0 0 - /proc", None, None, None)]
#[case::failed("df: /home/x: No such file or directory", None, None, None)]
fn disk_is_read_from_the_row_with_the_percent_sign(
    #[case] row: &str,
    #[case] total_mb: Option<u64>,
    #[case] free_mb: Option<u64>,
    #[case] used_pct: Option<f64>,
) {
    let body =
        format!("path /a b\nFilesystem 1024-blocks Used Available Capacity Mounted on\n{row}");
    let expected = Disk {
        path: "/a b".to_owned(),
        total_mb,
        free_mb,
        used_pct,
    };
    assert_eq!(read(&[("disk_home", "0", &body)], disks), [expected]);
}
