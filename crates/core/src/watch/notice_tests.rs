use rstest::rstest;

use super::*;

fn event() -> EventRecord {
    EventRecord {
        id: 5,
        watch_id: 7,
        event_type: EventType::Completed,
        summary: "train on gpu1: it ended with exit code 0".to_owned(),
        created: 17,
        payload: json!({
            "watch": {"name": "train", "log_file": "/home/u/x.log"},
            "exit_code": 0,
            "log_tail": "a line of the log",
        }),
    }
}

fn request(kind: NotifierKind, url: &str, secret: Option<&str>) -> NotifierRequest {
    let address = WebAddress::parse(url).unwrap();
    let notice = text_for_people(&event());
    NotifierRequest::new(kind, address, secret, &notice, 1_599_360_473_000).unwrap()
}

#[test]
fn notice_is_short_and_has_no_log_in_it() {
    let notice = text_for_people(&event());
    assert_eq!(notice.title, "completed: train");
    assert_eq!(
        notice.text,
        "train on gpu1: it ended with exit code 0\nlog: /home/u/x.log\nwatch: 7"
    );
    assert_eq!(notice.weight, Weight::Usual);
    let mut failed = event();
    failed.payload["exit_code"] = json!(1);
    assert_eq!(text_for_people(&failed).weight, Weight::High);
}

#[test]
fn notice_is_bounded_whatever_the_names_are() {
    let mut event = event();
    event.summary = "<".repeat(100_000);
    event.payload["watch"]["name"] = json!("é\n".repeat(10_000));
    let notice = text_for_people(&event);
    assert!(notice.text.len() <= LONGEST_TEXT && notice.title.len() <= LONGEST_TITLE);
    let address = WebAddress::parse("https://qyapi.weixin.qq.com/x?key=k").unwrap();
    let request = NotifierRequest::new(NotifierKind::WeCom, address, None, &notice, 0).unwrap();
    assert!(request.body["text"]["content"].as_str().unwrap().len() <= 2048);
}

#[test]
fn ntfy_is_told_in_json_with_the_topic_of_its_address() {
    let request = request(NotifierKind::Ntfy, "https://ntfy.sh/my-topic", Some("tk_1"));
    assert_eq!(request.address.target(), "/");
    assert_eq!(request.body["topic"], "my-topic");
    assert_eq!(request.body["title"], "completed: train");
    assert_eq!(request.body["priority"], 3);
    assert_eq!(request.authorization.unwrap().expose(), "Bearer tk_1");
}

#[rstest]
#[case("https://ntfy.sh")]
#[case("https://ntfy.sh/a/")]
#[case("https://ntfy.sh/a.b")]
fn ntfy_without_a_topic_is_refused(#[case] url: &str) {
    let address = WebAddress::parse(url).unwrap();
    let notice = text_for_people(&event());
    let made = NotifierRequest::new(NotifierKind::Ntfy, address, None, &notice, 0);
    assert_eq!(made.unwrap_err(), RequestError::Topic);
}

#[test]
fn slack_does_not_read_marks_in_the_text() {
    let mut event = event();
    event.summary = "<!channel> a & b".to_owned();
    let notice = text_for_people(&event);
    let address = WebAddress::parse("https://hooks.slack.com/services/T/B/x").unwrap();
    let request = NotifierRequest::new(NotifierKind::Slack, address, None, &notice, 0).unwrap();
    let text = request.body["text"].as_str().unwrap();
    assert!(text.contains("&lt;!channel&gt; a &amp; b"), "{text}");
}

/// The signature is the one of the service's own documentation for this time and secret.
#[test]
fn feishu_is_signed_with_the_time_and_the_secret_as_the_key() {
    let url = "https://open.feishu.cn/open-apis/bot/v2/hook/x";
    let signed = request(NotifierKind::Feishu, url, Some("demo")).body;
    assert_eq!(signed["timestamp"], "1599360473");
    assert_eq!(
        signed["sign"],
        "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8="
    );
    assert_eq!(signed["msg_type"], "text");
    let plain = request(NotifierKind::Feishu, url, None).body;
    assert!(plain.get("sign").is_none());
    let text = plain["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("completed: train\n"), "{text}");
}

#[test]
fn feishu_and_wecom_do_not_call_everybody() {
    let mut event = event();
    event.summary = "<at user_id=\"all\">x</at> <@all>".to_owned();
    let notice = text_for_people(&event);
    for kind in [NotifierKind::Feishu, NotifierKind::WeCom] {
        let address = WebAddress::parse("https://h/x").unwrap();
        let request = NotifierRequest::new(kind, address, None, &notice, 0).unwrap();
        let body = request.body.to_string();
        assert!(!body.contains('<') && body.contains("user_id"), "{body}");
    }
}

#[test]
fn dingtalk_is_signed_in_the_query() {
    let url = "https://oapi.dingtalk.com/robot/send?access_token=t";
    let request = request(NotifierKind::DingTalk, url, Some("SEC0123456789"));
    assert_eq!(
        request.address.target(),
        "/robot/send?access_token=t&timestamp=1599360473000&sign=vyjodWzjCu6OpOclkxC%2FHUt36Fu7FgulJL05ARAqXXA%3D"
    );
    assert_eq!(request.body["msgtype"], "text");
}

#[rstest]
#[case(NotifierKind::Feishu, r#"{"code":0,"msg":"success"}"#, true)]
#[case(
    NotifierKind::Feishu,
    r#"{"StatusCode":0,"StatusMessage":"success"}"#,
    true
)]
#[case(
    NotifierKind::Feishu,
    r#"{"code":19021,"msg":"sign match fail"}"#,
    false
)]
#[case(NotifierKind::DingTalk, r#"{"errcode":0,"errmsg":"ok"}"#, true)]
#[case(
    NotifierKind::DingTalk,
    r#"{"errcode":310000,"errmsg":"keywords not in content"}"#,
    false
)]
#[case(
    NotifierKind::WeCom,
    r#"{"errcode":93000,"errmsg":"invalid webhook url"}"#,
    false
)]
#[case(NotifierKind::WeCom, "<html>", false)]
#[case(NotifierKind::Slack, "ok", true)]
#[case(NotifierKind::Ntfy, "", true)]
fn answer_of_a_service_is_believed_not_its_status(
    #[case] kind: NotifierKind,
    #[case] body: &str,
    #[case] is_taken: bool,
) {
    assert_eq!(kind.judge(body.as_bytes()).is_ok(), is_taken);
}

#[test]
fn refusal_of_a_service_has_its_code_and_words() {
    let reply = NotifierKind::DingTalk.judge(br#"{"errcode":310000,"errmsg":"sign\nnot match"}"#);
    let text = reply.unwrap_err().to_string();
    assert!(
        text.contains("310000") && text.contains("sign not match"),
        "{text}"
    );
}

#[test]
fn webhook_is_signed_over_time_number_and_body() {
    let sign = signature("whsec", 17, 5, br#"{"a":1}"#);
    assert_eq!(
        sign,
        "11cc848af504fa3783a3806f60802fa3ad9bf95e10339ca65ca5650aea64569b"
    );
}
