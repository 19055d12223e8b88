use super::*;
use crate::mcp::schema::schema_of;
use rstest::rstest;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
struct Sample {
    command: String,
    #[serde(default)]
    timeout_s: i64,
    #[serde(default)]
    check: bool,
    #[serde(default)]
    cwd: Option<String>,
}

fn run(arguments: Value) -> Result<Sample, Failure> {
    let Value::Object(arguments) = arguments else {
        panic!("not an object")
    };
    decode("sample", &schema_of::<Sample>(), arguments)
}

#[rstest]
#[case::plain(json!({"command": "x", "timeout_s": 5, "check": true}))]
#[case::number_as_text(json!({"command": "x", "timeout_s": "5", "check": "true"}))]
#[case::whole_float(json!({"command": "x", "timeout_s": 5.0, "check": "yes"}))]
#[case::null_is_absent(json!({"command": "x", "timeout_s": 5, "check": true, "cwd": null}))]
fn sloppy_arguments_are_taken(#[case] arguments: Value) {
    let expected = Sample {
        command: "x".into(),
        timeout_s: 5,
        check: true,
        cwd: None,
    };
    assert_eq!(run(arguments).unwrap(), expected);
}

#[rstest]
#[case::unknown(json!({"command": "x", "bogus": 1}), "no field `bogus`")]
#[case::missing(json!({}), "needs the field `command`")]
#[case::fraction(json!({"command": "x", "timeout_s": 1.5}), "`timeout_s` must be of type integer")]
#[case::wrong(json!({"command": ["x"]}), "`command` must be of type string, it is an array")]
#[case::huge(json!({"command": "x", "timeout_s": 1e300}), "`timeout_s` must be of type integer")]
fn wrong_arguments_name_the_field(#[case] arguments: Value, #[case] expected: &str) {
    let failure = run(arguments).unwrap_err();
    assert_eq!(failure.code, Code::InvalidParams);
    assert!(failure.message.contains(expected), "{}", failure.message);
    assert!(failure.hint.contains("command"), "{}", failure.hint);
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
struct Quiet {
    #[serde(default)]
    #[schemars(extend("number_too" = true))]
    gpus: Option<String>,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    interval_s: i64,
}

#[test]
fn unlisted_parameter_is_taken_and_not_told_of() {
    let schema = schema_of::<Quiet>();
    let run = |arguments: Value| {
        let arguments = arguments.as_object().unwrap().clone();
        decode::<Quiet>("quiet", &schema, arguments)
    };
    let taken = run(json!({"gpus": 2, "interval_s": "5"})).unwrap();
    assert_eq!(taken.gpus.as_deref(), Some("2"));
    assert_eq!(taken.interval_s, 5);
    let listed = Value::Object(crate::mcp::schema::listed(&schema));
    assert_eq!(listed["properties"], json!({"gpus": {"type": "string"}}));
    let error = run(json!({"interval_s": []})).unwrap_err();
    assert_eq!(error.hint, "usage: quiet(gpus?: string)");
    let error = run(json!({"other": 1})).unwrap_err();
    assert!(error.hint.contains("interval_s"), "{}", error.hint);
}
