//! HTTP/1.1, as much as a page on the same machine needs: GET requests without bodies.
//!
//! Every answer forbids being kept, framed, or read by another page. A request is refused unless it
//! names this server by its address and port, knows the secret, and comes from the page itself.

use std::io::{self, Read, Write};

/// The longest head of a request: its line and all fields.
const HEAD_MAX: usize = 16 << 10;
/// Fields of a request.
const FIELDS_MAX: usize = 64;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The path behind the secret, without the first slash.
    pub path: String,
    /// The text behind the question mark.
    pub query: String,
    /// Whether the client wants to ask more on this connection.
    pub keeps_alive: bool,
}

/// Who may ask.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub port: u16,
    pub secret: String,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    TooLong,
    Method,
    Host,
    Origin,
    Secret,
}

impl Refusal {
    /// Status and sentence.
    pub fn answer(self) -> (u16, &'static str) {
        match self {
            Refusal::Malformed => (400, "this is no HTTP request that the viewer understands"),
            Refusal::TooLong => (431, "the request is longer than any of the page's"),
            Refusal::Method => (405, "only GET is answered"),
            Refusal::Host => (403, "the viewer is asked by its own address only"),
            Refusal::Origin => (403, "the viewer answers its own page only"),
            Refusal::Secret => (404, "there is nothing here; open the address that `everycall view` printed"),
        }
    }
}

/// Reads the head of a request. `left` holds what was read behind the last one, and afterwards
/// what is behind this one. `None` at the end of the connection.
pub(crate) fn read_head(from: &mut impl Read, left: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = left.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = left.split_off(end + 4);
            return Ok(Some(std::mem::replace(left, rest)));
        }
        if left.len() > HEAD_MAX {
            return Ok(Some(std::mem::take(left)));
        }
        let mut buffer = [0; 4096];
        let count = match from.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if count == 0 {
            return Ok(None);
        }
        left.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
}

impl Rules {
    /// The request with this head, if it is allowed.
    pub fn check(&self, head: &[u8]) -> Result<Request, Refusal> {
        if head.len() > HEAD_MAX {
            return Err(Refusal::TooLong);
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLong),
            _ => return Err(Refusal::Malformed),
        }
        let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version)
        else {
            return Err(Refusal::Malformed);
        };
        if method != "GET" {
            return Err(Refusal::Method);
        }
        let mut hosts = 0;
        let mut keeps_alive = version == 1;
        for field in request.headers.iter() {
            let value = str::from_utf8(field.value).map_err(|_| Refusal::Malformed)?.trim();
            match field.name.to_ascii_lowercase().as_str() {
                "host" => {
                    hosts += 1;
                    if !self.is_own_address(value) {
                        return Err(Refusal::Host);
                    }
                }
                "origin" if !value.strip_prefix("http://").is_some_and(|own| self.is_own_address(own)) => {
                    return Err(Refusal::Origin);
                }
                // `none`: the user typed the address, or a program opened it.
                "sec-fetch-site" if !matches!(value, "same-origin" | "none") => return Err(Refusal::Origin),
                "content-length" if value != "0" => return Err(Refusal::Malformed),
                "transfer-encoding" => return Err(Refusal::Malformed),
                "connection" if value.eq_ignore_ascii_case("close") => keeps_alive = false,
                _ => {}
            }
        }
        if hosts != 1 {
            return Err(Refusal::Host);
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.strip_prefix('/').ok_or(Refusal::Malformed)?;
        let (secret, path) = path.split_once('/').ok_or(Refusal::Secret)?;
        if !is_same(secret.as_bytes(), self.secret.as_bytes()) {
            return Err(Refusal::Secret);
        }
        Ok(Request { path: path.to_owned(), query: query.to_owned(), keeps_alive })
    }

    fn is_own_address(&self, address: &str) -> bool {
        let Some((host, port)) = address.rsplit_once(':') else { return false };
        matches!(host, "127.0.0.1" | "localhost") && port.parse() == Ok(self.port)
    }
}

/// Compares in a time that doesn't depend on where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (one, other)| sum | (one ^ other)) == 0
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

impl Answer {
    /// Writes it.
    pub fn write(&self, out: &mut impl Write, keeps_alive: bool) -> io::Result<()> {
        let Answer { status, kind, body } = self;
        let reason = match status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            _ => "Error",
        };
        let connection = if keeps_alive { "keep-alive" } else { "close" };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\n\
             Content-Type: {kind}\r\n\
             Content-Length: {}\r\n\
             Connection: {connection}\r\n\
             Cache-Control: no-store\r\n\
             Content-Security-Policy: {POLICY}\r\n\
             Cross-Origin-Opener-Policy: same-origin\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\
             Referrer-Policy: no-referrer\r\n\
             X-Content-Type-Options: nosniff\r\n\
             X-Frame-Options: DENY\r\n\r\n",
            body.len()
        );
        out.write_all(head.as_bytes())?;
        out.write_all(body)?;
        out.flush()
    }
}

/// The content security policy: the page may load its own files and answers.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; worker-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules { port: 4711, secret: "0123456789abcdef0123456789abcdef".to_owned() }
    }

    /// The answer to a request for `target` with these fields.
    fn check(line: &str, fields: &str) -> Result<Request, Refusal> {
        rules().check(format!("{line}\r\n{fields}\r\n").as_bytes())
    }

    const PAGE: &str = "GET /0123456789abcdef0123456789abcdef/slices?from=1 HTTP/1.1";
    const HOST: &str = "Host: 127.0.0.1:4711\r\n";

    #[test]
    fn the_page_is_answered() {
        let request = Request { path: "slices".to_owned(), query: "from=1".to_owned(), keeps_alive: true };
        assert_eq!(check(PAGE, HOST), Ok(request.clone()));
        assert_eq!(
            check(PAGE, "host: localhost:4711\r\nSec-Fetch-Site: same-origin\r\n"),
            Ok(request.clone())
        );
        let origin = format!("{HOST}Origin: http://127.0.0.1:4711\r\nsec-fetch-site: none\r\n");
        assert_eq!(check(PAGE, &origin), Ok(request));
        assert!(!check(PAGE, &format!("{HOST}Connection: close\r\n")).unwrap().keeps_alive);
    }

    #[test]
    fn others_are_refused() {
        let with = |field: &str| check(PAGE, &format!("{HOST}{field}\r\n")).unwrap_err();
        // Another name for the same address: a page of that name could be anybody's.
        for host in ["evil.example:4711", "127.0.0.1:4712", "127.0.0.1", "127.0.0.1.evil.example:4711", ""] {
            assert_eq!(check(PAGE, &format!("Host: {host}\r\n")), Err(Refusal::Host), "{host}");
        }
        assert_eq!(check(PAGE, ""), Err(Refusal::Host));
        assert_eq!(check(PAGE, &format!("{HOST}Host: evil.example\r\n")), Err(Refusal::Host));
        assert_eq!(check(PAGE, &format!("{HOST}{HOST}")), Err(Refusal::Host));
        for origin in ["http://evil.example", "null", "https://127.0.0.1:4711", "http://127.0.0.1:80"] {
            assert_eq!(with(&format!("Origin: {origin}")), Refusal::Origin, "{origin}");
        }
        assert_eq!(with("Sec-Fetch-Site: cross-site"), Refusal::Origin);
        assert_eq!(with("Sec-Fetch-Site: same-site"), Refusal::Origin);
        assert_eq!(with("Content-Length: 5"), Refusal::Malformed);
        assert_eq!(with("Transfer-Encoding: chunked"), Refusal::Malformed);
        for method in ["POST", "HEAD", "OPTIONS", "PUT", "get"] {
            assert_eq!(check(&PAGE.replace("GET", method), HOST), Err(Refusal::Method), "{method}");
        }
        for path in
            ["/", "/trace", "/0123456789abcdef0123456789abcdee/trace", "/0123456789abcdef/trace", "//trace"]
        {
            assert_eq!(check(&format!("GET {path} HTTP/1.1"), HOST), Err(Refusal::Secret), "{path}");
        }
        assert_eq!(check("GET http://127.0.0.1:4711/ HTTP/1.1", HOST), Err(Refusal::Malformed));
    }

    #[test]
    fn garbage_and_floods_are_refused() {
        for head in [
            &b"\r\n\r\n"[..],
            b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
            b"GET\r\n\r\n",
            b"\xff\xfe / HTTP/1.1\r\n\r\n",
        ] {
            assert!(rules().check(head).is_err(), "{head:?}");
        }
        let long = PAGE.replace("from=1", &"a".repeat(HEAD_MAX));
        assert_eq!(check(&long, HOST), Err(Refusal::TooLong));
        assert_eq!(check(PAGE, &format!("{HOST}{}", "A: b\r\n".repeat(FIELDS_MAX))), Err(Refusal::TooLong));
        // Whoever never ends a request gets no more memory than this.
        let endless = vec![b'a'; 10 << 20];
        let head = read_head(&mut endless.as_slice(), &mut Vec::new()).unwrap().unwrap();
        assert!(head.len() <= HEAD_MAX + 4096 + 1);
    }

    #[test]
    fn requests_follow_each_other_on_a_connection() {
        let mut left = Vec::new();
        let mut from = &b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET"[..];
        assert_eq!(read_head(&mut from, &mut left).unwrap().unwrap(), b"GET /a HTTP/1.1\r\n\r\n");
        assert_eq!(read_head(&mut from, &mut left).unwrap().unwrap(), b"GET /b HTTP/1.1\r\n\r\n");
        assert_eq!(read_head(&mut from, &mut left).unwrap(), None);
    }
}
