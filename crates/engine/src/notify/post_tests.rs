//! Posts to webhooks and services, against a real listener on this machine. Loopback is allowed because it is listed.

use std::time::Duration;

use base64::Engine as _;
use remote_sandbox_core::secret::{Secret, SecretName};
use remote_sandbox_core::watch::{Channel, WebAddress, signature};
use rstest::rstest;
use tokio::io::AsyncWriteExt as _;

use super::testing::{Answering, Stage, Web, event, order, read_request, said};
use super::*;

const LISTED: &str = "[watchdog]\nwebhook_hosts = [\"127.0.0.1\", \"localhost\"]\n";

async fn post(stage: &Stage, url: &str) -> Result<(), DeliveryError> {
    let mut order = order();
    order.webhook_url = Some(url.to_owned());
    stage.deliver(Channel::Webhook, &order).await
}

fn impatient(text: &str) -> Stage {
    let mut stage = Stage::new(text);
    stage.settings.limits.post = Duration::from_millis(400);
    stage
}

#[tokio::test]
async fn webhook_gets_the_event_as_json() {
    let web = Web::new(Answering::status(204, "")).await;
    post(&Stage::new(LISTED), &web.url()).await.unwrap();
    let came = web.came();
    assert_eq!(came.len(), 1);
    assert!(
        came[0]
            .head
            .starts_with("POST /hook?key=t0ken-t0ken HTTP/1.1\r\n")
    );
    let host = format!("127.0.0.1:{}", web.port);
    assert_eq!(came[0].header("host"), Some(host.as_str()));
    assert_eq!(came[0].header("content-type"), Some("application/json"));
    assert_eq!(came[0].header("x-remote-sandbox-event-id"), Some("12"));
    assert_eq!(came[0].header("x-remote-sandbox-signature"), None);
    let body: serde_json::Value = serde_json::from_slice(&came[0].body).unwrap();
    assert_eq!(body, event().json());
}

#[tokio::test]
async fn webhook_is_signed_when_there_is_a_secret() {
    let stage = Stage::new(&format!("{LISTED}webhook_secret_secret = \"hook\"\n"));
    let name = SecretName::parse("hook").unwrap();
    let secret = Secret::new("whsec-0123456789".to_owned());
    stage.store.set(&name, &secret).unwrap();
    let web = Web::new(Answering::status(200, "ok")).await;
    post(&stage, &web.url()).await.unwrap();
    let came = &web.came()[0];
    let time: u64 = came
        .header("x-remote-sandbox-timestamp")
        .unwrap()
        .parse()
        .unwrap();
    assert!(crate::clock::wall().as_secs().abs_diff(time) < 60);
    let sign = signature("whsec-0123456789", time, 12, &came.body);
    let sign = format!("v1={sign}");
    assert_eq!(
        came.header("x-remote-sandbox-signature"),
        Some(sign.as_str())
    );
    assert!(!came.head.contains("whsec"));
}

#[tokio::test]
async fn nothing_is_posted_unsigned_when_the_secret_cannot_be_had() {
    let stage = Stage::new(&format!("{LISTED}webhook_secret_secret = \"not-kept\"\n"));
    let web = Web::new(Answering::status(200, "ok")).await;
    let error = post(&stage, &web.url()).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Secret(_)), "{error:?}");
    assert!(web.came().is_empty() && !error.is_permanent());
}

#[rstest]
#[case(500, false)]
#[case(429, false)]
#[case(404, true)]
#[tokio::test]
async fn f47_status_of_a_webhook_decides_whether_it_is_tried_again(
    #[case] status: u16,
    #[case] is_permanent: bool,
) {
    let web = Web::new(Answering::status(status, "t0ken-t0ken")).await;
    let error = post(&Stage::new(LISTED), &web.url()).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Status { status: found, .. } if found == status));
    assert_eq!(error.is_permanent(), is_permanent);
    assert!(!said(&error).contains("t0ken"), "{}", said(&error));
}

#[tokio::test]
async fn f47_webhook_that_never_answers_takes_no_longer_than_its_time() {
    let web = Web::new(Answering::Never).await;
    let begun = crate::clock::instant();
    let error = post(&impatient(LISTED), &web.url()).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(matches!(error, DeliveryError::TooSlow { .. }), "{error:?}");
    assert!(!error.is_permanent());
}

#[tokio::test]
async fn f47_redirect_is_not_followed() {
    let other = Web::new(Answering::status(200, "")).await;
    let redirect = format!(
        "HTTP/1.1 302 X\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
        other.url()
    );
    let web = Web::new(Answering::With(redirect)).await;
    let error = post(&Stage::new(LISTED), &web.url()).await.unwrap_err();
    assert!(
        matches!(error, DeliveryError::Status { status: 302, .. }),
        "{error:?}"
    );
    assert!(other.came().is_empty() && !error.is_permanent());
}

#[rstest]
#[case("http://169.254.169.254/latest/meta-data/")]
#[case("http://[::ffff:169.254.169.254]/latest/meta-data/")]
#[case("http://[fe80::1]/")]
#[case("http://[fd00:ec2::254]/")]
#[case("http://0.0.0.0:1/")]
#[case("http://[ff02::1]/")]
#[tokio::test]
async fn f47_link_local_and_its_like_are_refused_even_where_anything_is_allowed(#[case] url: &str) {
    let hosts = "webhook_hosts = [\"169.254.169.254\", \"[fe80::1]\"]";
    let stage = Stage::new(&format!(
        "[watchdog]\nallow_event_command = \"any\"\n{hosts}\n"
    ));
    let error = post(&stage, url).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Policy(_)), "{error:?}");
}

#[tokio::test]
async fn name_that_means_this_machine_is_refused_unless_it_is_listed() {
    let web = Web::new(Answering::status(200, "")).await;
    let url = format!("http://localhost:{}/", web.port);
    let any = Stage::new("[watchdog]\nallow_event_command = \"any\"\n");
    let error = post(&any, &url).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Policy(_)), "{error:?}");
    // A name of which that is known only when it is looked up.
    let address = WebAddress::parse(&url).unwrap();
    let looked_up = post::Post {
        address: &address,
        may_be_here: false,
        authorization: None,
        headers: Vec::new(),
        body: Vec::new(),
    };
    let error = looked_up.send(&any.settings).await.unwrap_err();
    let is_loopback = matches!(
        error,
        DeliveryError::Refused {
            kind: remote_sandbox_core::watch::AddressKind::Loopback,
            ..
        }
    );
    assert!(is_loopback && web.came().is_empty(), "{error:?}");
    post(&Stage::new(LISTED), &url).await.unwrap();
    assert_eq!(web.came().len(), 1);
}

#[tokio::test]
async fn webhook_that_is_not_listed_any_more_gets_nothing() {
    let web = Web::new(Answering::status(200, "")).await;
    let error = post(&Stage::new(""), &web.url()).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Policy(_)), "{error:?}");
    assert!(web.came().is_empty());
}

#[tokio::test]
async fn f47_garbage_is_no_answer() {
    let web = Web::new(Answering::With("SSH-2.0-x\r\n\r\n".to_owned())).await;
    let error = post(&Stage::new(LISTED), &web.url()).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Http { .. }), "{error:?}");
    assert!(!error.is_permanent());
}

#[tokio::test]
async fn answer_without_end_is_read_only_as_far_as_it_matters() {
    let web = Web::new(Answering::WithoutEnd).await;
    post(&Stage::new(LISTED), &web.url()).await.unwrap();
}

#[tokio::test]
async fn closed_port_is_tried_again() {
    let port = remote_sandbox_testkit::free_port();
    let url = format!("http://127.0.0.1:{port}/t0ken-t0ken");
    let error = post(&Stage::new(LISTED), &url).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Connect { .. }), "{error:?}");
    assert!(!error.is_permanent() && !said(&error).contains("t0ken"));
}

/// A certificate for `localhost`, its key, and another certificate for the same name; good for a hundred years.
const CERTIFICATE: &str = concat!(
    "MIIBkzCCATigAwIBAgIUCGW+2U/BjDPiF64AuQXzQaMDYU0wCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2",
    "MTExNjEwMDcxNloYDzIxMjYxMDIzMTAwNzE2WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC",
    "AAThhTzJDZDG/4c8HkucfB8GQsCOuIdW/aR8fA8yDg8+PUjcXj/lWGCOssFsnYwHyLDLGIriYJIq9fbxtr1KulGIo2YwZDAdBgNV",
    "HQ4EFgQU6Qp/DCHfVAtrwS3USYNtQak1KJowHwYDVR0jBBgwFoAU6Qp/DCHfVAtrwS3USYNtQak1KJowFAYDVR0RBA0wC4IJbG9j",
    "YWxob3N0MAwGA1UdEwEB/wQCMAAwCgYIKoZIzj0EAwIDSQAwRgIhANtZZP3tiwh3MtMdDEKEjigA9D2jU6iPBvPfXpKrTQs+AiEA",
    "s8jkUmfiqHVMJaYZ87a9PPGDlic4ph6HJ/+Q+uC30IU=",
);
const KEY: &str = concat!(
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgIooeYqT8fkX0ARGnVPiTJCQAfyX9x/8p+qpXU+SUolmhRANCAATh",
    "hTzJDZDG/4c8HkucfB8GQsCOuIdW/aR8fA8yDg8+PUjcXj/lWGCOssFsnYwHyLDLGIriYJIq9fbxtr1KulGI",
);
const OTHER: &str = concat!(
    "MIIBkzCCATigAwIBAgIUdzYoGo1sGVFtBZIK4m8lH9vqAJwwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2",
    "MTExNjEwMDIxNVoYDzIxMjYxMDIzMTAwMjE1WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC",
    "AATGMy0VIbHZHMlEExKFxTXynZ9Mcd1zE6F+JvGtwjSefCNJuO0mueSKhgyDFjXuvufzehctIANsy4IvcYi17MI8o2YwZDAdBgNV",
    "HQ4EFgQU9KW4QRmtYhbui0B9t2UulKPAqKEwHwYDVR0jBBgwFoAU9KW4QRmtYhbui0B9t2UulKPAqKEwFAYDVR0RBA0wC4IJbG9j",
    "YWxob3N0MAwGA1UdEwEB/wQCMAAwCgYIKoZIzj0EAwIDSQAwRgIhAKvpwNV5nqLqILn8eIaMXOoZ8ksjlN+HjmC0/uBmJgJeAiEA",
    "nurJ4rpOoUcW7dr4AAbtwZTWfC5IDICgA1Gz6eAVmNs=",
);

fn der(text: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap()
}

fn trusting(certificate: &str) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der(certificate).into()).unwrap();
    roots
}

/// A web server that speaks TLS.
async fn secure_web() -> u16 {
    let certificate = der(CERTIFICATE).into();
    let key = rustls::pki_types::PrivateKeyDer::try_from(der(KEY)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            if read_request(&mut stream).await.is_some() {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n")
                    .await;
            }
        }
    });
    port
}

#[tokio::test]
async fn https_is_spoken_with_a_host_that_is_trusted_and_with_no_other() {
    let port = secure_web().await;
    let url = format!("https://localhost:{port}/t0ken-t0ken");
    let stage = Stage::new(LISTED);
    stage
        .settings
        .tls
        .set(super::post::tls_with(trusting(CERTIFICATE)).unwrap())
        .unwrap();
    post(&stage, &url).await.unwrap();
    let other = format!("https://127.0.0.1:{port}/");
    let error = post(&stage, &other).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Connect { .. }), "{error:?}");

    let stranger = Stage::new(LISTED);
    stranger
        .settings
        .tls
        .set(super::post::tls_with(trusting(OTHER)).unwrap())
        .unwrap();
    let error = post(&stranger, &url).await.unwrap_err();
    assert!(
        said(&error).to_lowercase().contains("certificate"),
        "{error:?}"
    );
    assert!(!said(&error).contains("t0ken"));
}

fn notifier(kind: &str, web: &Web, path: &str, more: &str) -> Stage {
    let url = format!("http://127.0.0.1:{}{path}", web.port);
    Stage::new(&format!(
        "[[watchdog.notifiers]]\nname = \"n\"\nkind = \"{kind}\"\nurl = \"{url}\"\n{more}\n"
    ))
}

async fn notify(stage: &Stage) -> Result<(), DeliveryError> {
    stage
        .deliver(Channel::Notifier("n".to_owned()), &order())
        .await
}

#[tokio::test]
async fn ntfy_is_told_with_its_access_token() {
    let web = Web::new(Answering::status(200, "{}")).await;
    let stage = notifier("ntfy", &web, "/my-topic", "secret = \"tk_0123456789\"");
    notify(&stage).await.unwrap();
    let came = &web.came()[0];
    assert!(
        came.head.starts_with("POST / HTTP/1.1\r\n"),
        "{}",
        came.head
    );
    assert_eq!(came.header("authorization"), Some("Bearer tk_0123456789"));
    let body: serde_json::Value = serde_json::from_slice(&came.body).unwrap();
    assert_eq!(body["topic"], "my-topic");
    assert!(
        !body.to_string().contains("quoted"),
        "no line of the log: {body}"
    );
}

#[rstest]
#[case(
    "feishu",
    "/open-apis/bot/v2/hook/t0ken-t0ken",
    r#"{"code":0}"#,
    r#"{"code":19021,"msg":"t0ken-t0ken sign match fail"}"#
)]
#[case(
    "dingtalk",
    "/robot/send?access_token=t0ken-t0ken",
    r#"{"errcode":0}"#,
    r#"{"errcode":310000,"errmsg":"bad t0ken-t0ken"}"#
)]
#[case(
    "wecom",
    "/cgi-bin/webhook/send?key=t0ken-t0ken",
    r#"{"errcode":0}"#,
    r#"{"errcode":93000,"errmsg":"bad key t0ken-t0ken"}"#
)]
#[tokio::test]
async fn service_that_answers_200_is_asked_what_it_means(
    #[case] kind: &str,
    #[case] path: &str,
    #[case] good: &str,
    #[case] bad: &str,
) {
    let web = Web::new(Answering::status(200, good)).await;
    notify(&notifier(kind, &web, path, "")).await.unwrap();
    assert_eq!(web.came().len(), 1);
    let web = Web::new(Answering::status(200, bad)).await;
    let error = notify(&notifier(kind, &web, path, "")).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Service { .. }), "{error:?}");
    assert!(!error.is_permanent());
    // The service repeats the token alone.
    assert!(!said(&error).contains("t0ken"), "{}", said(&error));
}

#[tokio::test]
async fn address_of_a_service_is_kept_from_all_that_is_said() {
    let path = "/robot/send?access_token=t0ken-t0ken";
    let reply = r#"{"errcode":1,"errmsg":"no /robot/send?access_token=t0ken-t0ken here"}"#;
    let web = Web::new(Answering::status(200, reply)).await;
    let stage = notifier("dingtalk", &web, path, "secret = \"SEC0123456789\"");
    let error = notify(&stage).await.unwrap_err();
    assert!(
        !said(&error).contains("t0ken") && !said(&error).contains("SEC012"),
        "{}",
        said(&error)
    );
    assert!(web.came()[0].head.contains("&sign="));
    let shown = format!("{:?}", stage.settings);
    assert!(!shown.contains("t0ken") && !shown.contains("SEC012"));
}

#[tokio::test]
async fn notifier_that_is_gone_is_not_tried_again() {
    let error = notify(&Stage::new("")).await.unwrap_err();
    assert!(matches!(error, DeliveryError::UnknownNotifier(_)) && error.is_permanent());
    let error = Stage::new("")
        .deliver(Channel::Webhook, &order())
        .await
        .unwrap_err();
    assert!(matches!(error, DeliveryError::Nothing(_)) && error.is_permanent());
}
