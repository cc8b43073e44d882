//! Who is there, and which ZMTP does it speak?

use crate::zmq::error::ZmtpError;

/// Both sides begin with so many bytes.
pub const GREETING_BYTES: usize = 64;

/// What we begin with: ZMTP 3.1, mechanism NULL. The eight bytes between the two of the signature are what libzmq
/// sends for the sake of older peers.
pub(crate) const OURS: [u8; GREETING_BYTES] = {
    let mut bytes = [0; GREETING_BYTES];
    bytes[0] = SIGNATURE_START;
    bytes[8] = 1;
    bytes[9] = SIGNATURE_END;
    bytes[10] = 3;
    bytes[11] = 1;
    bytes[12] = b'N';
    bytes[13] = b'U';
    bytes[14] = b'L';
    bytes[15] = b'L';
    bytes
};

const SIGNATURE_START: u8 = 0xff;
const SIGNATURE_END: u8 = 0x7f;
const MECHANISM: std::ops::Range<usize> = 12..32;

/// How the peer wants to be subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerVersion {
    /// ZMTP 3.0: by a message whose first byte is 1.
    V3_0,
    /// ZMTP 3.1 and later: by a command.
    V3_1,
}

/// Reads the peer's greeting.
#[derive(Debug)]
pub struct Greeting {
    bytes: [u8; GREETING_BYTES],
    filled: usize,
}

impl Default for Greeting {
    fn default() -> Self {
        Self {
            bytes: [0; GREETING_BYTES],
            filled: 0,
        }
    }
}

impl Greeting {
    /// Takes what belongs to the greeting from the front of `input`. A peer that speaks something else is found out at
    /// its first byte, so that an HTTP server's answer is not waited for.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<PeerVersion>, ZmtpError> {
        let taken = input.len().min(GREETING_BYTES - self.filled);
        let (head, rest) = input.split_at(taken);
        self.bytes[self.filled..self.filled + taken].copy_from_slice(head);
        self.filled += taken;
        *input = rest;
        self.check()
    }

    fn check(&self) -> Result<Option<PeerVersion>, ZmtpError> {
        let byte = |place: usize| (place < self.filled).then(|| self.bytes[place]);
        if let Some(first) = byte(0)
            && first != SIGNATURE_START
        {
            return Err(ZmtpError::NotZmtp(first));
        }
        // ZMTP 1 has a length and an identity here, and no such bit.
        if let Some(last) = byte(9)
            && last & 1 == 0
        {
            return Err(ZmtpError::OldVersion);
        }
        if let Some(major) = byte(10)
            && major < 3
        {
            return Err(ZmtpError::OldVersion);
        }
        if self.filled < GREETING_BYTES {
            return Ok(None);
        }
        let mechanism = self.bytes[MECHANISM]
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        if mechanism != b"NULL" {
            return Err(ZmtpError::Mechanism(mechanism.escape_ascii().to_string()));
        }
        Ok(Some(match (self.bytes[10], self.bytes[11]) {
            (3, 0) => PeerVersion::V3_0,
            _ => PeerVersion::V3_1,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(major: u8, minor: u8, mechanism: &[u8]) -> [u8; GREETING_BYTES] {
        let mut bytes = OURS;
        (bytes[10], bytes[11]) = (major, minor);
        bytes[MECHANISM].fill(0);
        bytes[12..12 + mechanism.len()].copy_from_slice(mechanism);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Option<PeerVersion>, ZmtpError> {
        Greeting::default().take(&mut &bytes[..])
    }

    #[test]
    fn versions_and_mechanisms() {
        assert_eq!(read(&OURS), Ok(Some(PeerVersion::V3_1)));
        assert_eq!(read(&greeting(3, 0, b"NULL")), Ok(Some(PeerVersion::V3_0)));
        assert_eq!(read(&greeting(4, 0, b"NULL")), Ok(Some(PeerVersion::V3_1)));
        assert_eq!(read(&greeting(1, 0, b"NULL")), Err(ZmtpError::OldVersion));
        assert_eq!(
            read(&greeting(3, 1, b"CURVE")),
            Err(ZmtpError::Mechanism("CURVE".into()))
        );
        assert_eq!(
            read(&greeting(3, 1, b"NULLO")),
            Err(ZmtpError::Mechanism("NULLO".into()))
        );
        assert_eq!(read(b"HTTP/1.1 400"), Err(ZmtpError::NotZmtp(b'H')));
        assert_eq!(read(b"\xff\0\0\0\0\0\0\0\x01\0"), Err(ZmtpError::OldVersion));
    }

    #[test]
    fn it_comes_in_pieces_and_takes_no_more_than_its_own() {
        let mut bytes = OURS.to_vec();
        bytes.extend(b"rest");
        let mut greeting = Greeting::default();
        for byte in &bytes[..GREETING_BYTES - 1] {
            assert_eq!(greeting.take(&mut std::slice::from_ref(byte)), Ok(None));
        }
        let mut rest = &bytes[GREETING_BYTES - 1..];
        assert_eq!(greeting.take(&mut rest), Ok(Some(PeerVersion::V3_1)));
        assert_eq!(rest, b"rest");
    }
}
