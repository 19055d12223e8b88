use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::SandboxName;
use remote_sandbox_core::probe::{Cpu, Memory};
use remote_sandbox_engine::sandbox::Description;

use super::*;

fn probed(alive: Result<(), Failure>, resources: Option<Resources>) -> Listed {
    Listed::Ready(Probed {
        description: Description {
            name: SandboxName::parse("gpu1").unwrap(),
            kind: "ssh",
            host: "h".to_owned(),
            port: Some(22),
            user: "u".to_owned(),
            place: None,
            tags: Vec::new(),
            warnings: Vec::new(),
            local: None,
        },
        alive,
        resources: resources.map(Ok),
    })
}

fn busy() -> Listed {
    let resources = Resources {
        cpu: Cpu {
            load_1m: Some(4.0),
            count: Some(8),
            util_pct: Some(50.0),
            ..Cpu::default()
        },
        memory: Memory {
            total_mb: Some(65_536),
            used_mb: Some(16_384),
            ..Memory::default()
        },
        disk: Vec::new(),
        gpu: Vec::new(),
        gpu_error: None,
        idle_score: Some(0.625),
    };
    probed(Ok(()), Some(resources))
}

fn terminal(width: usize, colour: bool) -> Look {
    Look::Bars { width, colour }
}

#[test]
fn plain_page_has_one_line_per_sandbox() {
    let dead = probed(Err(Failure::new(Code::Unreachable, "no route")), None);
    let text = page(&[busy(), dead], Look::Plain);
    assert_eq!(
        text,
        "gpu1; alive; cpu 50% load 4.00 of 8; memory 16.0/64.0 GiB; score 0.62\n\
         gpu1; unreachable; no route\n"
    );
}

#[test]
fn bars_fit_the_terminal_at_every_width() {
    for width in [20, 40, 80, 200] {
        let text = page(&[busy()], terminal(width, false));
        assert!(!text.contains('\x1b'));
        for line in text.lines() {
            let length = line.chars().count();
            assert!(length <= width.max(23), "{width}: {length}: {line}");
        }
    }
    let wide = page(&[busy()], terminal(80, false));
    let half = "█".repeat(20);
    assert!(wide.contains(&format!("▕{half} ")), "{wide}");
}

#[test]
fn colour_is_used_only_when_wanted() {
    assert!(page(&[busy()], terminal(80, true)).contains("\x1b[33m"));
    assert!(!page(&[busy()], terminal(80, false)).contains('\x1b'));
}

#[test]
fn unknown_share_is_dotted_and_a_full_one_is_full() {
    assert_eq!(bar(None, 8), "········");
    assert_eq!(bar(Some(0.0), 8), "        ");
    assert_eq!(bar(Some(7.0), 8), "████████");
    assert_eq!(bar(Some(1.0 / 64.0), 8), "▏       ");
}
