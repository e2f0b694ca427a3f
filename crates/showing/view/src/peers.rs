//! The owner of a connection on loopback, from the kernel's table of sockets.

use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, SocketAddrV4, TcpStream};

/// Bytes of the table that are read: some 400,000 sockets.
const TABLE_MAX: u64 = 64 << 20;

/// Whether another user than ours, and than root, has the other end; false if that isn't known.
pub(crate) fn is_of_another_user(stream: &TcpStream) -> bool {
    let user = rustix::process::geteuid().as_raw();
    // Through a forwarded port, the other end is a process of ours.
    let (Ok(SocketAddr::V4(peer)), Ok(SocketAddr::V4(own))) = (stream.peer_addr(), stream.local_addr())
    else {
        return false;
    };
    let mut table = Vec::new();
    let read = fs::File::open("/proc/net/tcp").and_then(|file| file.take(TABLE_MAX).read_to_end(&mut table));
    if read.is_err() {
        return false;
    }
    owner(&String::from_utf8_lossy(&table), peer, own).is_some_and(|owner| owner != user && owner != 0)
}

/// The user of the socket with this own address and this other end. In a namespace of users, one
/// that has no number there has the overflow number, which identifies nobody.
fn owner(table: &str, address: SocketAddrV4, other: SocketAddrV4) -> Option<u32> {
    let shown = |address: SocketAddrV4| {
        let number = u32::from_ne_bytes(address.ip().octets());
        format!("{number:08X}:{:04X}", address.port())
    };
    let (address, other) = (shown(address), shown(other));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_it = words.next()? == address && words.next()? == other;
        // State, queues, timer and retransmissions come between.
        let user = words.nth(4)?.parse().ok();
        user.filter(|_| is_it)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 11 1 0
   1: 0100007F:D431 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 65534        0 12 1 0
   2: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1001        0 13 1 0
";

    #[test]
    fn both_ends_have_their_owners() {
        let at = |port| SocketAddrV4::new([127, 0, 0, 1].into(), port);
        assert_eq!(owner(TABLE, at(0xd431), at(0x1f90)), Some(65_534));
        assert_eq!(owner(TABLE, at(0x1f90), at(0xd431)), Some(1001));
        assert_eq!(owner(TABLE, at(1), at(0x1f90)), None);
    }

    #[test]
    fn a_connection_of_ours_is_no_other_users() {
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert!(!is_of_another_user(&stream));
    }
}
