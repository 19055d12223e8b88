//! Addresses of webhooks as they are shown: without what lets somebody in.

/// What stands for a part that is not shown.
const HIDDEN: &str = "***";

/// The address without the user in it, its path and the values of its query: each of them often is a password.
pub fn shown_webhook(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let mut shown = String::with_capacity(url.len());
    if !scheme.is_empty() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    match authority.rsplit_once('@') {
        Some((_, host)) => {
            shown.push_str(HIDDEN);
            shown.push('@');
            shown.push_str(host);
        }
        None => shown.push_str(authority),
    }
    let (target, _) = target.split_once('#').unwrap_or((target, ""));
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    match path {
        "" | "/" => shown.push_str(path),
        _ => {
            shown.push('/');
            shown.push_str(HIDDEN);
        }
    }
    let Some(query) = query else {
        return shown;
    };
    for (place, pair) in query.split('&').enumerate() {
        shown.push(if place == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, _)) => {
                shown.push_str(name);
                shown.push('=');
                shown.push_str(HIDDEN);
            }
            // A query without names is one word, and most likely a secret one.
            None => shown.push_str(HIDDEN),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://hooks.example.org/a/b", "https://hooks.example.org/***")]
    #[case("https://hooks.example.org/", "https://hooks.example.org/")]
    #[case(
        "https://me:pass@example.org:8443/x",
        "https://***@example.org:8443/***"
    )]
    #[case(
        "https://example.org/x?token=abc&to=me#part",
        "https://example.org/***?token=***&to=***"
    )]
    #[case("http://example.org?abc", "http://example.org?***")]
    #[case("http://a@b@example.org", "http://***@example.org")]
    #[case("http://example.org/a@b", "http://example.org/***")]
    #[case("", "")]
    fn webhook_is_shown_without_what_lets_somebody_in(#[case] url: &str, #[case] shown: &str) {
        assert_eq!(shown_webhook(url), shown);
    }
}
