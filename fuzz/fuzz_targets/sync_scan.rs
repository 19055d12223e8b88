#![no_main]
//! Any bytes as the scan of a host: read the same however they were cut, sorted and planned without a panic.

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::plan::{Direction, PlanOptions, Planner};
use remote_sandbox_core::sync::scan::{Found, ScanReader, Scanner};
use remote_sandbox_core::sync::{Entry, EntryList, Filter};

fn read(scanner: Scanner, bytes: &[u8], piece: usize) -> (Vec<Found>, bool) {
    let mark = RunToken::from_uuid_bytes([7; 16]);
    let mut reader = ScanReader::new(&mark, scanner);
    let mut found = Vec::new();
    let begin = format!("RSMCP:{mark}:scan\n");
    let mut fed = reader.feed(begin.as_bytes(), &mut |one| found.push(one));
    for part in bytes.chunks(piece) {
        fed = fed.and_then(|()| reader.feed(part, &mut |one| found.push(one)));
    }
    (found, fed.is_ok() && reader.finish().is_ok())
}

fuzz_target!(|input: (bool, u16, &[u8])| {
    let (is_stat, piece, bytes) = input;
    let scanner = if is_stat {
        Scanner::FindStat
    } else {
        Scanner::Find
    };
    let (found, is_whole) = read(scanner, bytes, bytes.len().max(1));
    let (pieces, is_whole_in_pieces) = read(scanner, bytes, usize::from(piece).max(1));
    // In one piece a record may be judged too long only after the ones before it were handed over.
    if is_whole && is_whole_in_pieces {
        assert_eq!(found, pieces);
    }
    let mut list = EntryList::new(1000);
    for one in found {
        if let Found::Entry(entry) = one {
            let _ = list.push(entry);
        }
    }
    let sorted = list.sorted();
    let entries: Vec<Entry> = sorted.iter().collect();
    assert!(entries.windows(2).all(|pair| pair[0].path < pair[1].path));
    let filter = Filter::default();
    let mut options = PlanOptions::new(Direction::Down);
    options.delete_extras = true;
    let half = entries.iter().step_by(2).cloned();
    let planner = Planner::new(options, &filter, sorted.iter(), half, std::iter::empty());
    assert!(planner.into_iter().all(|action| action.is_ok()));
});
