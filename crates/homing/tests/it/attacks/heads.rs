//! Heads of requests, and the framing of their bodies, that two readers could understand differently.
//!
//! Of each case one answer comes, what is refused says why in JSON, nothing that is hidden behind it reaches the engine, and the gateway goes on.

use super::harness::{Connection, FakeEngine, Process, ReceivedRequest, check_all, try_exchange};

/// What must become of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The engine gets the good request, once.
    Served,
    /// One of these statuses, with an error in JSON. The connection ends where the head or the framing is wrong.
    Refused(&'static [u16]),
    /// The connection ends without an answer.
    Closed,
}
use Expected::{Closed, Refused, Served};

const BAD: Expected = Refused(&[400]);
const TOO_LONG: Expected = Refused(&[431]);
const TOO_SLOW: Expected = Refused(&[408]);
const VERSION: Expected = Refused(&[505]);
const NOT_HERE: Expected = Refused(&[404, 405]);

struct Case {
    name: String,
    expected: Expected,
    bytes: Vec<u8>,
}

/// `@@@@` becomes the number of the case, so that lengths stay as they are.
const GOOD: &str = r#"{"model":"tiny","prompt":"good-@@@@","max_tokens":1}"#;
const EVIL: &str = r#"{"model":"tiny","prompt":"evil-@@@@","max_tokens":1}"#;
/// The length of both, and that in hexadecimal digits.
const LENGTH: usize = 52;
const HEX: &str = "34";

/// A request hidden behind something.
fn evil() -> String {
    format!("POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n{EVIL}")
}

#[derive(Default)]
struct Table(Vec<Case>);

impl Table {
    fn add(&mut self, name: &str, expected: Expected, bytes: impl AsRef<[u8]>) {
        let number = format!("{:04}", self.0.len());
        let mut bytes = bytes.as_ref().to_vec();
        while let Some(at) = bytes.windows(4).position(|window| window == b"@@@@") {
            bytes[at..at + 4].copy_from_slice(number.as_bytes());
        }
        self.0.push(Case {
            name: name.to_owned(),
            expected,
            bytes,
        });
    }

    /// A good request but for its first line.
    fn first_line(&mut self, name: &str, expected: Expected, line: &str) {
        let head = format!("{line}\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n{GOOD}");
        self.add(name, expected, head);
    }

    /// A good request but for these headers behind its length, each with its line end.
    fn headers(&mut self, name: &str, expected: Expected, headers: &str) {
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n");
        self.add(name, expected, format!("{head}{headers}\r\n{GOOD}"));
    }

    /// A request whose headers about its body are these, each with its line end; one is hidden behind it.
    fn framing(&mut self, name: &str, expected: Expected, headers: &str, body: &str) {
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: a\r\n{headers}\r\n{body}");
        let hidden = if expected == Served { String::new() } else { evil() };
        self.add(name, expected, format!("{head}{hidden}"));
    }

    /// A request in chunks, with one hidden behind it, which is never read.
    fn chunks(&mut self, name: &str, expected: Expected, body: &str) {
        let head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        self.add(name, expected, format!("{head}{body}{}", evil()));
    }
}

fn lengths_and_encodings(table: &mut Table) {
    let chunked = format!("{HEX}\r\n{GOOD}\r\n0\r\n\r\n");
    let length = format!("content-length: {LENGTH}\r\n");
    let encoding = "transfer-encoding: chunked\r\n";
    for (name, headers) in [
        ("a length before an encoding", format!("{length}{encoding}")),
        ("an encoding before a length", format!("{encoding}{length}")),
        (
            "a length of 0 beside an encoding",
            format!("content-length: 0\r\n{encoding}"),
        ),
        (
            "a length beside an unknown encoding",
            format!("{length}transfer-encoding: xchunked\r\n"),
        ),
        (
            "a length beside an empty encoding",
            format!("{length}transfer-encoding:\r\n"),
        ),
        (
            "a length beside `identity`",
            format!("{length}transfer-encoding: identity\r\n"),
        ),
        (
            "an encoding that goes on",
            "transfer-encoding: chunked, identity\r\n".into(),
        ),
        (
            "two encodings, chunked last",
            "transfer-encoding: gzip, chunked\r\n".into(),
        ),
        (
            "identity, then chunked",
            "transfer-encoding: identity, chunked\r\n".into(),
        ),
        (
            "chunked twice in one header",
            "transfer-encoding: chunked, chunked\r\n".into(),
        ),
        ("chunked in two headers", format!("{encoding}{encoding}")),
        (
            "chunked, then identity",
            format!("{encoding}transfer-encoding: identity\r\n"),
        ),
        ("chunked with a parameter", "transfer-encoding: chunked;q=1\r\n".into()),
        ("chunked in quotes", "transfer-encoding: \"chunked\"\r\n".into()),
        (
            "an encoding with a comma behind it",
            "transfer-encoding: chunked,\r\n".into(),
        ),
        (
            "an encoding with a comma before it",
            "transfer-encoding: ,chunked\r\n".into(),
        ),
        ("an empty encoding", "transfer-encoding:\r\n".into()),
        (
            "an encoding behind a vertical tab",
            "transfer-encoding: \x0bchunked\r\n".into(),
        ),
        ("an encoding before a NUL", "transfer-encoding: chunked\0\r\n".into()),
        ("an encoding before a DEL", "transfer-encoding: chunked\x7f\r\n".into()),
        (
            "a space before the colon of an encoding",
            "transfer-encoding : chunked\r\n".into(),
        ),
        (
            "a tab before the colon of an encoding",
            "transfer-encoding\t: chunked\r\n".into(),
        ),
        ("a folded encoding", "transfer-encoding:\r\n chunked\r\n".into()),
        (
            "an encoding folded with a tab",
            "transfer-encoding:\r\n\tchunked\r\n".into(),
        ),
        (
            "an encoding in a folded line",
            "x: y\r\n transfer-encoding: chunked\r\n".into(),
        ),
        (
            "an encoding behind a bare line feed",
            format!("{length}x: y\ntransfer-encoding: chunked\r\n"),
        ),
        (
            "an encoding behind a bare carriage return",
            format!("{length}x: y\rtransfer-encoding: chunked\r\n"),
        ),
    ] {
        table.framing(name, BAD, &headers, &chunked);
    }
    for (name, headers) in [
        ("an encoding in capitals", "TRANSFER-ENCODING: CHUNKED\r\n"),
        ("an encoding behind a tab", "transfer-encoding:\tchunked\t\r\n"),
    ] {
        table.framing(name, Served, headers, &chunked);
    }
    table.framing(
        "an underscore in an encoding",
        Served,
        &format!("{length}transfer_encoding: chunked\r\n"),
        GOOD,
    );
    for (name, headers) in [
        ("the same length twice", format!("{length}{length}")),
        ("two lengths", format!("{length}content-length: 0\r\n")),
        ("two lengths in one header", format!("content-length: {LENGTH}, 0\r\n")),
        (
            "one length twice in one header",
            format!("content-length: {LENGTH}, {LENGTH}\r\n"),
        ),
        ("a length with a plus", format!("content-length: +{LENGTH}\r\n")),
        ("a length below zero", format!("content-length: -{LENGTH}\r\n")),
        ("a length in hexadecimal digits", format!("content-length: 0x{HEX}\r\n")),
        ("a length with a point", format!("content-length: {LENGTH}.0\r\n")),
        ("a length with an exponent", format!("content-length: {LENGTH}e0\r\n")),
        ("two numbers in a length", format!("content-length: {LENGTH} 0\r\n")),
        ("an empty length", "content-length:\r\n".into()),
        ("a length in words", "content-length: many\r\n".into()),
        ("a length with a semicolon", format!("content-length: {LENGTH};a=b\r\n")),
        (
            "a length of 64 bits and more",
            "content-length: 18446744073709551668\r\n".into(),
        ),
        (
            "a length of a hundred digits",
            format!("content-length: {}\r\n", "9".repeat(100)),
        ),
        (
            "a length in other digits",
            "content-length: \u{ff15}\u{ff12}\r\n".into(),
        ),
        (
            "a length behind a vertical tab",
            format!("content-length: \x0b{LENGTH}\r\n"),
        ),
        ("a folded length", format!("content-length:\r\n {LENGTH}\r\n")),
        (
            "a length that goes on in a folded line",
            "content-length: 5\r\n 2\r\n".into(),
        ),
        (
            "a space before the colon of a length",
            format!("content-length : {LENGTH}\r\n"),
        ),
        (
            "a space in the name of a length",
            format!("content length: {LENGTH}\r\n"),
        ),
        ("a length without a colon", format!("content-length {LENGTH}\r\n")),
        (
            "a NUL in the name of a length",
            format!("content-length\0: {LENGTH}\r\n"),
        ),
        ("a length behind a space", format!(" content-length: {LENGTH}\r\n")),
    ] {
        table.framing(name, BAD, &headers, GOOD);
    }
    table.framing(
        "a length with zeros before it",
        Served,
        &format!("content-length: 000{LENGTH}\r\n"),
        GOOD,
    );
    table.framing(
        "a length with tabs around it",
        Served,
        &format!("content-length:\t{LENGTH}\t\r\n"),
        GOOD,
    );
}

fn lines(table: &mut Table) {
    let length = format!("content-length: {LENGTH}");
    for (name, head) in [
        (
            "lines that end with a line feed",
            format!("POST /v1/completions HTTP/1.1\nhost: a\n{length}\n\r\n\r\n"),
        ),
        (
            "a first line that ends with a line feed",
            format!("POST /v1/completions HTTP/1.1\nhost: a\r\n{length}\r\n\r\n"),
        ),
        (
            "a header that ends with a line feed",
            format!("POST /v1/completions HTTP/1.1\r\nhost: a\n{length}\r\n\r\n"),
        ),
        (
            "two carriage returns at a line end",
            format!("POST /v1/completions HTTP/1.1\r\r\nhost: a\r\n{length}\r\n\r\n"),
        ),
        (
            "an empty line that ends with a line feed",
            format!("POST /v1/completions HTTP/1.1\r\n{length}\r\nx: y\n\n\r\n\r\n"),
        ),
        (
            "a line feed before the first line",
            format!("\nPOST /v1/completions HTTP/1.1\r\n{length}\r\n\r\n"),
        ),
        (
            "a space before the first header",
            format!("POST /v1/completions HTTP/1.1\r\n x: y\r\n{length}\r\n\r\n"),
        ),
        (
            "a folded value",
            format!("POST /v1/completions HTTP/1.1\r\nx: y\r\n z\r\n{length}\r\n\r\n"),
        ),
        (
            "a value folded with a tab",
            format!("POST /v1/completions HTTP/1.1\r\nx: y\r\n\tz\r\n{length}\r\n\r\n"),
        ),
        (
            "a line of a space",
            format!("POST /v1/completions HTTP/1.1\r\nx: y\r\n \r\n{length}\r\n\r\n"),
        ),
    ] {
        table.add(name, BAD, format!("{head}{GOOD}{}", evil()));
    }
    let request = format!("POST /v1/completions HTTP/1.1\r\nhost: a\r\n{length}\r\n\r\n{GOOD}");
    table.add("an empty line before the first", Served, format!("\r\n{request}"));
    table.add(
        "many empty lines before the first",
        Served,
        format!("{}{request}", "\r\n".repeat(100)),
    );
    // What cannot become a head is waited for as long as a head may take.
    for (name, bytes) in [
        ("half a first line", "POST /v1/comp"),
        ("no end of the head", "POST /v1/completions HTTP/1.1\r\nhost: a\r\n"),
        (
            "an empty line of line feeds",
            "POST /v1/completions HTTP/1.1\nhost: a\n\n",
        ),
        (
            "lines that end with a carriage return",
            "POST /v1/completions HTTP/1.1\rhost: a\r\r",
        ),
        ("a first line of HTTP/0.9 alone", "GET /\r\n"),
        ("the banner of another protocol", "SSH-2.0-OpenSSH_9.9\r\n"),
    ] {
        table.add(name, TOO_SLOW, bytes);
    }
    table.add(
        "the beginning of TLS",
        TOO_SLOW,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    );
    table.add("nothing", Closed, b"");
}

fn first_lines(table: &mut Table) {
    let path = "/v1/completions";
    for (name, line) in [
        ("two spaces before the target", format!("POST  {path} HTTP/1.1")),
        ("two spaces before the version", format!("POST {path}  HTTP/1.1")),
        ("tabs between the words", format!("POST\t{path}\tHTTP/1.1")),
        ("a space before the method", format!(" POST {path} HTTP/1.1")),
        ("a space behind the version", format!("POST {path} HTTP/1.1 ")),
        ("a word behind the version", format!("POST {path} HTTP/1.1 x")),
        ("no version", format!("POST {path}")),
        ("no target", "POST HTTP/1.1".into()),
        ("one word", "POST".into()),
        ("a version in small letters", format!("POST {path} http/1.1")),
        ("a version of letters", format!("POST {path} HTTP/x.y")),
        ("a version without a slash", format!("POST {path} HTTP1.1")),
        ("a NUL in the method", format!("PO\0ST {path} HTTP/1.1")),
        ("a bracket in the method", format!("PO(ST {path} HTTP/1.1")),
        (
            "a letter beyond ASCII in the method",
            format!("P\u{d6}ST {path} HTTP/1.1"),
        ),
        (
            "a line of a proxy before the request",
            format!("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nPOST {path} HTTP/1.1"),
        ),
        ("a space in the target", "POST /v1/compl etions HTTP/1.1".into()),
        ("a space in the query", format!("POST {path}?a=b c HTTP/1.1")),
        ("a target without a slash", "POST v1/completions HTTP/1.1".into()),
        ("a target of back slashes", "POST \\v1\\completions HTTP/1.1".into()),
        ("a fragment", format!("POST {path}#x HTTP/1.1")),
        ("a star for a target", "POST * HTTP/1.1".into()),
        (
            "a letter beyond ASCII in the target",
            "POST /v1/completi\u{f6}ns HTTP/1.1".into(),
        ),
        ("a NUL in the target", "POST /v1/completions\0 HTTP/1.1".into()),
        ("a URL of another protocol", format!("POST gopher://a{path} HTTP/1.1")),
        ("a URL without a host", format!("POST http://{path} HTTP/1.1")),
        ("a URL with one slash", format!("POST http:/a{path} HTTP/1.1")),
    ] {
        table.first_line(name, BAD, &line);
    }
    for version in ["HTTP/0.9", "HTTP/1.2", "HTTP/1.10", "HTTP/2.0", "HTTP/3", "HTTP/11"] {
        table.first_line(version, VERSION, &format!("POST {path} {version}"));
    }
    table.add("the preface of HTTP/2", VERSION, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    for (name, line) in [
        ("a method in small letters", format!("post {path} HTTP/1.1")),
        ("the name of our own method", format!("HOMING-REFUSED {path} HTTP/1.1")),
        ("TRACE", format!("TRACE {path} HTTP/1.1")),
        ("PUT", format!("PUT {path} HTTP/1.1")),
        ("CONNECT", "CONNECT 169.254.169.254:80 HTTP/1.1".into()),
        ("OPTIONS of everything", "OPTIONS * HTTP/1.1".into()),
        (
            "a method of 20,000 letters",
            format!("{} {path} HTTP/1.1", "M".repeat(20_000)),
        ),
        ("two slashes before a path", format!("POST //a{path} HTTP/1.1")),
        ("two slashes within a path", "POST /v1//completions HTTP/1.1".into()),
        ("two slashes behind a path", format!("POST {path}// HTTP/1.1")),
        ("a point in a path", "POST /v1/./completions HTTP/1.1".into()),
        (
            "two points in a path",
            format!("POST {path}/../load_lora_adapter HTTP/1.1"),
        ),
        ("points in percent signs", format!("POST {path}/%2e%2e/sleep HTTP/1.1")),
        ("a slash in percent signs", format!("POST {path}%2f HTTP/1.1")),
        ("a NUL in percent signs", format!("POST {path}%00 HTTP/1.1")),
        ("a semicolon behind a path", format!("POST {path};a=b HTTP/1.1")),
        ("a path in capitals", "POST /V1/COMPLETIONS HTTP/1.1".into()),
        (
            "a path that administers an engine",
            "POST /reset_prefix_cache HTTP/1.1".into(),
        ),
        (
            "a URL that administers an engine",
            "POST http://a/v1/load_lora_adapter HTTP/1.1".into(),
        ),
        (
            "a path of 30,000 bytes",
            format!("POST /{} HTTP/1.1", "a/".repeat(15_000)),
        ),
    ] {
        table.first_line(name, NOT_HERE, &line);
    }
    for (name, line) in [
        (
            "a URL of another host",
            format!("POST http://evil.example{path} HTTP/1.1"),
        ),
        (
            "a URL with a user",
            format!("POST http://user:word@evil.example:99{path} HTTP/1.1"),
        ),
        ("a URL in capitals", format!("POST HTTPS://EVIL.EXAMPLE{path} HTTP/1.1")),
        ("a slash behind a path", format!("POST {path}/ HTTP/1.1")),
        ("a slash before a query", format!("POST {path}/?a=/ HTTP/1.1")),
        (
            "a line end in percent signs",
            format!("POST {path}?a=%0d%0aevil:%20b HTTP/1.1"),
        ),
        (
            "a query of 30,000 bytes",
            format!("POST {path}?{} HTTP/1.1", "a".repeat(30_000)),
        ),
        ("HTTP/1.0", format!("POST {path} HTTP/1.0")),
    ] {
        table.first_line(name, Served, &line);
    }
    let long = format!("POST {path}?{} HTTP/1.1", "a".repeat(70_000));
    table.first_line("a target of 70,000 bytes", TOO_LONG, &long);
}

fn header_fields(table: &mut Table) {
    for (name, headers) in [
        ("the same host twice", "host: a\r\n"),
        ("two hosts", "host: b\r\n"),
        ("a second host in capitals", "HOST: b\r\n"),
        ("a space before the colon of a host", "host : b\r\n"),
        ("a header without a name", ": b\r\n"),
        ("a header without a colon", "abc\r\n"),
        ("a space in a name", "a b: c\r\n"),
        ("a bracket in a name", "a(b: c\r\n"),
        ("a NUL in a name", "a\0b: c\r\n"),
        ("a letter beyond ASCII in a name", "\u{e4}: c\r\n"),
        ("a tab behind a name", "a\t: c\r\n"),
        ("a NUL in a value", "a: b\0c\r\n"),
        ("a bell in a value", "a: b\x07c\r\n"),
        ("an escape in a value", "a: \x1b[31m\r\n"),
        ("a DEL in a value", "a: b\x7f\r\n"),
        ("a bare carriage return in a value", "a: b\rc: d\r\n"),
        ("a form feed in a value", "a: b\x0cc\r\n"),
    ] {
        table.headers(name, BAD, headers);
    }
    for (name, headers) in [
        ("an empty value", "a:\r\n".to_owned()),
        ("a letter beyond ASCII in a value", "a: \u{e4}\r\n".into()),
        (
            "names of characters that names may have",
            "!#$%&'*+-.^_`|~9a: b\r\n".into(),
        ),
        (
            "an upgrade to HTTP/2",
            "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n".into(),
        ),
        (
            "an upgrade to a web socket",
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: YQ==\r\n".into(),
        ),
        (
            "a length named as the connection's",
            "connection: content-length\r\n".into(),
        ),
        ("a host named as the connection's", "connection: host, close\r\n".into()),
        (
            "an encoding named as the connection's",
            "connection: transfer-encoding\r\n".into(),
        ),
        ("an expectation", "expect: 100-continue\r\n".into()),
        (
            "trailers announced",
            "te: trailers\r\ntrailer: content-length\r\n".into(),
        ),
        ("a header of 30,000 bytes", format!("a: {}\r\n", "b".repeat(30_000))),
        ("a name of 30,000 bytes", format!("{}: b\r\n", "a".repeat(30_000))),
        ("98 headers more", "a: b\r\n".repeat(98)),
    ] {
        table.headers(name, Served, &headers);
    }
    table.headers("99 headers more", TOO_LONG, &"a: b\r\n".repeat(99));
    table.headers("10,000 headers", TOO_LONG, &"a: b\r\n".repeat(10_000));
    table.headers(
        "a header of 70,000 bytes",
        TOO_LONG,
        &format!("a: {}\r\n", "b".repeat(70_000)),
    );
    table.add("a head that does not end", TOO_LONG, "a".repeat(200_000));
    let bodiless = format!("POST /v1/completions HTTP/1.1\r\ncontent-length: {LENGTH}\r\n\r\n{GOOD}");
    table.add("no host", Served, bodiless);
}

fn chunks(table: &mut Table) {
    for (name, body) in [
        ("chunks", format!("{HEX}\r\n{GOOD}\r\n0\r\n\r\n")),
        (
            "a size with zeros before it",
            format!("00000{HEX}\r\n{GOOD}\r\n000\r\n\r\n"),
        ),
        ("an extension", format!("{HEX};a=b;c=\"d e\"\r\n{GOOD}\r\n0;x\r\n\r\n")),
        (
            "trailers",
            format!("{HEX}\r\n{GOOD}\r\n0\r\na: b\r\ncontent-length: 5\r\n\r\n"),
        ),
        ("chunks of one byte", {
            let (before, after) = GOOD.split_once("@@@@").expect("it has a mark");
            let single = |text: &str| text.chars().map(|byte| format!("1\r\n{byte}\r\n")).collect::<String>();
            format!("{}4\r\n@@@@\r\n{}0\r\n\r\n", single(before), single(after))
        }),
    ] {
        table.chunks(name, Served, &body);
    }
    for (name, body) in [
        ("a space behind a size", format!("{HEX} \r\n{GOOD}\r\n0\r\n\r\n")),
        ("a tab behind a size", format!("{HEX}\t\r\n{GOOD}\r\n0\r\n\r\n")),
        ("a space before a size", format!(" {HEX}\r\n{GOOD}\r\n0\r\n\r\n")),
        (
            "a space before an extension",
            format!("{HEX} ;a=b\r\n{GOOD}\r\n0\r\n\r\n"),
        ),
        ("a space behind the last size", format!("{HEX}\r\n{GOOD}\r\n0 \r\n\r\n")),
        ("a size with 0x", format!("0x{HEX}\r\n{GOOD}\r\n0\r\n\r\n")),
        ("a size with a plus", format!("+{HEX}\r\n{GOOD}\r\n0\r\n\r\n")),
        ("a size below zero", format!("-{HEX}\r\n{GOOD}\r\n0\r\n\r\n")),
        ("a size with an underscore", format!("3_4\r\n{GOOD}\r\n0\r\n\r\n")),
        ("a size of no digits", format!("\r\n{GOOD}\r\n0\r\n\r\n")),
        ("a size of letters", format!("xyz\r\n{GOOD}\r\n0\r\n\r\n")),
        ("a size of 64 bits", format!("FFFFFFFFFFFFFFFF\r\n{GOOD}\r\n0\r\n\r\n")),
        (
            "a size of 64 bits and more",
            format!("100000000000000{HEX}\r\n{GOOD}\r\n0\r\n\r\n"),
        ),
        ("an extension without a size", format!(";a=b\r\n{GOOD}\r\n0\r\n\r\n")),
        (
            "an extension of 20,000 bytes",
            format!("{HEX};{}\r\n{GOOD}\r\n0\r\n\r\n", "a".repeat(20_000)),
        ),
        ("a bare line feed behind a size", format!("{HEX}\n{GOOD}\r\n0\r\n\r\n")),
        (
            "a bare line feed in an extension",
            format!("{HEX};a\nb\r\n{GOOD}\r\n0\r\n\r\n"),
        ),
        (
            "a bare carriage return behind a size",
            format!("{HEX}\r{GOOD}\r\n0\r\n\r\n"),
        ),
        (
            "two carriage returns behind a size",
            format!("{HEX}\r\r\n{GOOD}\r\n0\r\n\r\n"),
        ),
        ("a NUL in an extension", format!("{HEX};a=\0\r\n{GOOD}\r\n0\r\n\r\n")),
        ("a bare line feed behind a chunk", format!("{HEX}\r\n{GOOD}\n0\r\n\r\n")),
        ("no line end behind a chunk", format!("{HEX}\r\n{GOOD}0\r\n\r\n")),
        (
            "a chunk that is longer than its size",
            format!("33\r\n{GOOD}\r\n0\r\n\r\n"),
        ),
        (
            "a chunk that is shorter than its size",
            format!("35\r\n{GOOD}\r\n0\r\n\r\n"),
        ),
        ("a bare line feed at the end", format!("{HEX}\r\n{GOOD}\r\n0\r\n\n")),
        (
            "a bare line feed behind the last size",
            format!("{HEX}\r\n{GOOD}\r\n0\n\r\n"),
        ),
        (
            "a trailer without a colon",
            format!("{HEX}\r\n{GOOD}\r\n0\r\nabc\r\n\r\n"),
        ),
        (
            "a folded trailer",
            format!("{HEX}\r\n{GOOD}\r\n0\r\na: b\r\n c\r\n\r\n"),
        ),
        (
            "a trailer with a bare line feed",
            format!("{HEX}\r\n{GOOD}\r\n0\r\na: b\n\r\n\r\n"),
        ),
        ("a NUL in a trailer", format!("{HEX}\r\n{GOOD}\r\n0\r\na: \0\r\n\r\n")),
        (
            "trailers of 100,000 bytes",
            format!("{HEX}\r\n{GOOD}\r\n0\r\n{}\r\n", "a: b\r\n".repeat(17_000)),
        ),
        ("a request in place of the end", format!("{HEX}\r\n{GOOD}\r\n")),
        ("a request in place of trailers", format!("{HEX}\r\n{GOOD}\r\n0\r\n")),
    ] {
        table.chunks(name, BAD, &body);
    }
    let old =
        format!("POST /v1/completions HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n{HEX}\r\n{GOOD}\r\n0\r\n\r\n");
    table.add("chunks in HTTP/1.0", BAD, old);
}

fn table() -> Vec<Case> {
    let mut table = Table::default();
    lengths_and_encodings(&mut table);
    lines(&mut table);
    first_lines(&mut table);
    header_fields(&mut table);
    chunks(&mut table);
    table.0
}

/// Sends one case, and says what is wrong with what comes back.
fn check(gateway: &str, case: &Case) -> Result<(), String> {
    let failed = |why: String| Err(format!("{}: {why}", case.name));
    let mut connection = Connection::open(gateway);
    // The gateway may answer and close before it took all.
    let _ = connection.send(&case.bytes);
    match (connection.read_response(), case.expected) {
        (Err(_), Closed) => {}
        (Err(error), _) => return failed(format!("no answer: {error}")),
        (Ok(response), Served) => {
            if response.status != 200 || response.json()["choices"][0]["text"] != "yes" {
                return failed(format!("{}: {}", response.status, response.text()));
            }
        }
        (Ok(response), Refused(statuses)) => {
            let message = response.error_message().unwrap_or_default();
            if !statuses.contains(&response.status) || message.is_empty() {
                return failed(format!("{}: {:?}", response.status, response.text()));
            }
            if response.body.len() > 1500 {
                return failed(format!("an error of {} bytes", response.body.len()));
            }
            if !matches!(response.status, 404 | 405) && !connection.is_closed_by_peer() {
                return failed("the connection goes on".to_owned());
            }
        }
        (Ok(response), Closed) => return failed(format!("answered with {}", response.status)),
    }
    let good = GOOD.replace("good-@@@@", "usual");
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{good}",
        good.len()
    );
    match try_exchange(gateway, request) {
        Ok(response) if response.status == 200 => Ok(()),
        other => failed(format!("a good request afterwards: {other:?}")),
    }
}

/// What is wrong with a request that reached the engine.
fn strange(request: &ReceivedRequest) -> Option<String> {
    let count = |name: &str| {
        let same = |(other, _): &&(String, String)| other.eq_ignore_ascii_case(name);
        request.headers.iter().filter(same).count()
    };
    let path = request.target.split('?').next();
    let is_good = request.method == "POST"
        && path == Some("/v1/completions")
        && (count("content-length"), count("host"), count("transfer-encoding")) == (1, 1, 0)
        && request.header("upgrade").is_none()
        && !request.headers.iter().any(|(name, _)| name == "evil");
    (!is_good).then(|| String::from_utf8_lossy(&request.raw).into_owned())
}

#[test]
fn a_head_is_read_in_one_way_or_refused_in_words() {
    let cases = table();
    assert!(cases.len() >= 110, "{}", cases.len());
    let engine = FakeEngine::start("tiny");
    let mut gateway = Process::serve(&[&engine.url()], &["--header-timeout", "2s"]);
    let address = gateway.wait_ready().address();
    check_all(&cases, |case| check(&address, case));
    let mut requests = engine.requests();
    // The gateway asks for the tokens of prompts.
    requests.retain(|request| request.target != "/tokenize");
    let strange: Vec<String> = requests.iter().filter_map(strange).collect();
    assert!(strange.is_empty(), "{strange:#?}");
    for (number, case) in cases.iter().enumerate() {
        let with = |mark: String| requests.iter().filter(|request| request.text().contains(&mark)).count();
        let expected = usize::from(case.expected == Served);
        assert_eq!(with(format!("good-{number:04}")), expected, "{}", case.name);
        assert_eq!(with(format!("evil-{number:04}")), 0, "{}", case.name);
    }
    assert!(gateway.is_running(), "{}", gateway.stderr());
    assert!(!gateway.stderr().contains("panicked"), "{}", gateway.stderr());
}
