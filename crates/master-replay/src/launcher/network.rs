//! A network of its own for a master and its replayer, and free ports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use nix::unistd::{getgid, getuid};

/// Moves the calling thread, and every process it starts from now on, into a network that holds nothing but a
/// loopback device.
///
/// Works as root, and for anyone where user namespaces are allowed as long as the process has one thread.
///
/// # Errors
///
/// Neither is allowed here.
pub fn enter_private_network() -> io::Result<()> {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => raise_loopback(),
        Err(nix::errno::Errno::EPERM) => {
            let (user, group) = (getuid(), getgid());
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
            raise_loopback()
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Asks the kernel, over its routing socket, to set the first device up. In a new network that is the loopback one.
fn raise_loopback() -> io::Result<()> {
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    const LOOPBACK: u32 = 1;
    const UP: u32 = 1;
    let mut message = Vec::new();
    for word in [32_u32, u32::from(REQUEST_AND_ACKNOWLEDGE) << 16 | u32::from(NEW_LINK), 1, 0] {
        message.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [0, LOOPBACK, UP, UP] {
        message.extend_from_slice(&word.to_ne_bytes());
    }
    let socket =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let error = answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::Error::other("the kernel gave a short answer")),
    }
}

/// Two ports that nobody has at this moment.
pub(super) fn free_ports() -> io::Result<[u16; 2]> {
    let listen = || TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

/// Whether the socket that listens on this port belongs to this process.
pub(super) fn listens(pid: u32, port: u16) -> io::Result<bool> {
    let inodes = listening_inodes(port)?;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        if inode.is_some_and(|inode| inodes.iter().any(|found| found == inode)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn listening_inodes(port: u16) -> io::Result<Vec<String>> {
    const LISTEN: &str = "0A";
    let mut inodes = Vec::new();
    for file in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        // A kernel without IPv6 has no second file.
        let Ok(table) = std::fs::read_to_string(file) else { continue };
        for row in table.lines().skip(1) {
            let fields: Vec<&str> = row.split_whitespace().collect();
            let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { continue };
            let local_port = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
            if state == LISTEN && local_port == Some(port) {
                inodes.push(inode.to_owned());
            }
        }
    }
    Ok(inodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_listener_is_found() {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert!(listens(std::process::id(), port).expect("readable"));
        assert!(!listens(std::process::id(), 1).expect("readable"));
    }
}
