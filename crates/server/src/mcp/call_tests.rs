use super::*;
use remote_sandbox_core::config::ResultStyle;
use remote_sandbox_engine::call::Principal;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn context() -> CallContext {
    CallContext::new(Principal::local(), CancellationToken::new())
}

/// The reply on the wire, and the object in its text.
fn shown(reply: Reply) -> (Value, Value) {
    let result = serde_json::to_value(reply.into_result(ResultStyle::Json)).unwrap();
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    (result, serde_json::from_str(&text).unwrap())
}

#[tokio::test]
async fn panic_at_once_is_an_error_reply() {
    let reply = attend(&context(), None, async { panic!("secret detail") }).await;
    let (result, facts) = shown(reply);
    assert_eq!(result["isError"], true);
    assert_eq!(facts["code"], "internal");
    assert!(!facts.to_string().contains("secret detail"), "{facts}");
}

#[tokio::test]
async fn panic_after_a_while_is_an_error_reply() {
    let work = async {
        tokio::task::yield_now().await;
        let nothing: Vec<u8> = Vec::new();
        let _ = nothing[nothing.len()];
        Ok(Reply::new(json!({}), "never"))
    };
    let (result, facts) = shown(attend(&context(), None, work).await);
    assert_eq!(result["isError"], true);
    assert_eq!(facts["code"], "internal");
}

#[tokio::test]
async fn call_after_a_panic_is_served() {
    let context = context();
    attend(&context, None, async { panic!("first") }).await;
    let work = async { Ok(Reply::new(json!({"fine": true}), "fine")) };
    let (result, facts) = shown(attend(&context, None, work).await);
    assert_ne!(result["isError"], true);
    assert_eq!(facts, json!({"fine": true}));
}

#[tokio::test]
async fn failure_keeps_its_code() {
    let work = async { Err(Failure::new(Code::NotFound, "no such thing").hint("look elsewhere")) };
    let (result, facts) = shown(attend(&context(), None, work).await);
    assert_eq!(result["isError"], true);
    assert_eq!(facts["code"], "not_found");
    assert_eq!(facts["hint"], "look elsewhere");
}
