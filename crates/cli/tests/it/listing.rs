//! What every client is told about the tools, and what that costs.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{builder, serve};

/// A rough measure: models read about four bytes as one token.
const BYTES_PER_TOKEN: usize = 4;
const MOST_TOKENS: usize = 2_000;
/// Tools that take more than they tell of: rare parameters, mostly of the Python package.
const OPEN: [&str; 6] = [
    "exec_bash_background",
    "check_background_task",
    "check_file_transfer_task",
    "cancel_file_transfer_task",
    "sync_local_to_remote",
    "sync_remote_to_local",
];

const MOST_TOKENS_WITH_CONTAINERS: usize = 3_200;

async fn tools() -> Vec<Value> {
    let client = serve(&[]).await;
    list(&client).await
}

async fn list(client: &remote_sandbox_testkit::McpClient) -> Vec<Value> {
    let limit = Duration::from_secs(20);
    let list = client
        .request("tools/list", json!({}), limit)
        .await
        .unwrap();
    list["tools"].as_array().unwrap().clone()
}

#[tokio::test]
async fn tools_are_what_they_were() {
    insta::assert_json_snapshot!("tools_list", tools().await);
}

#[tokio::test]
async fn tools_are_sorted_and_the_same_for_every_client() {
    let first = tools().await;
    let names: Vec<&str> = first
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(names.is_sorted(), "{names:?}");
    let client = builder(&[host()])
        .env("REMOTE_SANDBOX_RESULT_STYLE", "text")
        .env("REMOTE_SANDBOX_TOOLSETS", "containers")
        .start();
    client.discover().await;
    assert_eq!(list(&client).await, first);
    assert_eq!(list(&client).await, first);
}

fn host() -> Value {
    json!({"name": "x", "host": "127.0.0.1", "user": "u", "password": "p"})
}

#[tokio::test]
async fn tools_for_making_sandboxes_come_where_one_is_always_there_or_when_asked_for() {
    let offers = |tools: Vec<Value>| tools.iter().any(|tool| tool["name"] == "create_sandbox");
    assert!(offers(tools().await));
    let with_hosts = serve(&[host()]).await;
    assert!(!offers(list(&with_hosts).await));
    let refused = with_hosts
        .call_tool("create_sandbox", json!({"name": "x"}))
        .await;
    assert_eq!(refused.json["code"], "invalid_params", "{}", refused.text);
    let asked = builder(&[host()])
        .env("REMOTE_SANDBOX_TOOLSETS", "containers")
        .start();
    asked.discover().await;
    assert!(offers(list(&asked).await));
}

#[tokio::test]
async fn list_of_tools_is_cheap_to_read() {
    let tokens = |tools: Vec<Value>| Value::from(tools).to_string().len() / BYTES_PER_TOKEN;
    let with_containers = tokens(tools().await);
    assert!(
        with_containers < MOST_TOKENS_WITH_CONTAINERS,
        "about {with_containers}"
    );
    let for_hosts = tokens(list(&serve(&[host()]).await).await);
    assert!(for_hosts < MOST_TOKENS, "about {for_hosts} tokens");
}

#[tokio::test]
async fn instructions_are_short() {
    let client = builder(&[]).start();
    let answer = client.initialize("2025-06-18").await;
    let instructions = answer["instructions"].as_str().unwrap();
    assert!(instructions.chars().count() < 1500);
    for tool in list(&client).await {
        let name = tool["name"].as_str().unwrap();
        let described = instructions.contains(name) || name == "get_active_sandbox";
        assert!(described, "the instructions do not name {name}");
    }
}

#[tokio::test]
async fn schemas_hold_nothing_that_no_model_needs() {
    for tool in tools().await {
        let schema = &tool["inputSchema"];
        assert_eq!(schema["type"], "object", "{tool}");
        let closed = &schema["additionalProperties"];
        let is_open = OPEN.contains(&tool["name"].as_str().unwrap());
        assert_eq!(closed.is_null(), is_open, "{tool}");
        assert!(is_open || *closed == false, "{tool}");
        assert!(schema["properties"].is_object(), "{tool}");
        for key in ["$schema", "title", "description", "$defs"] {
            assert!(schema.get(key).is_none(), "{key} in {tool}");
        }
        assert!(tool.get("outputSchema").is_none(), "{tool}");
        for (name, property) in schema["properties"].as_object().unwrap() {
            // One plain type: not every client understands alternatives.
            assert!(property["type"].is_string(), "{name}: {property}");
            for key in ["title", "format", "minimum", "anyOf", "$ref", "nullable"] {
                assert!(property.get(key).is_none(), "{key} in {name}: {property}");
            }
        }
    }
}

#[tokio::test]
async fn every_tool_has_a_title_a_description_and_all_four_hints() {
    for tool in tools().await {
        assert!(
            tool["title"]
                .as_str()
                .is_some_and(|title| !title.is_empty()),
            "{tool}"
        );
        let description = tool["description"].as_str().unwrap();
        assert!((20..400).contains(&description.len()), "{description}");
        for hint in [
            "readOnlyHint",
            "destructiveHint",
            "idempotentHint",
            "openWorldHint",
        ] {
            assert!(tool["annotations"][hint].is_boolean(), "{hint} in {tool}");
        }
        let hints = &tool["annotations"];
        assert!(
            !(hints["readOnlyHint"] == true && hints["destructiveHint"] == true),
            "{tool}"
        );
    }
}

#[rstest]
#[case("list_sandboxes", [true, false, true, false])]
#[case("get_active_sandbox", [true, false, true, false])]
#[case("select_sandbox", [false, false, true, false])]
#[case("exec_bash", [false, true, false, true])]
#[case("check_background_task", [true, false, true, false])]
#[case("stop_background_task", [false, true, true, false])]
#[case("list_remote_files", [true, false, true, false])]
#[case("read_remote_file", [true, false, true, false])]
#[tokio::test]
async fn hints_tell_what_a_tool_does(#[case] name: &str, #[case] expected: [bool; 4]) {
    let tools = tools().await;
    let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
    let names = [
        "readOnlyHint",
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
    ];
    assert_eq!(
        names.map(|name| tool["annotations"][name].as_bool().unwrap()),
        expected
    );
}

#[tokio::test]
async fn three_core_tools_are_loaded_at_once() {
    let tools = tools().await;
    let core: Vec<&str> = tools
        .iter()
        .filter(|tool| tool["_meta"]["anthropic/alwaysLoad"] == true)
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        core,
        ["check_background_task", "exec_bash", "list_sandboxes"]
    );
}
