//! What a socket is told so that a peer that is gone is noticed.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

/// When a peer that says nothing counts as gone: an open connection whose other end has vanished looks like silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Liveness {
    /// After how long a silence the kernel begins to ask, in whole seconds.
    pub keepalive_idle: Duration,
    /// How long it waits between two questions, in whole seconds.
    pub keepalive_interval: Duration,
    /// After how many unanswered questions the connection is given up.
    pub keepalive_count: u32,
    /// How long sent bytes may stay unacknowledged.
    pub unacknowledged: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Liveness {
            keepalive_idle: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(2),
            keepalive_count: 3,
            unacknowledged: Duration::from_secs(10),
        }
    }
}

pub(crate) fn configure(stream: &impl AsFd, liveness: &Liveness) -> io::Result<()> {
    setsockopt(stream, sockopt::TcpNoDelay, &true)?;
    let seconds = |span: Duration| u32::try_from(span.as_secs().max(1)).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &seconds(liveness.keepalive_idle))?;
    setsockopt(stream, sockopt::TcpKeepInterval, &seconds(liveness.keepalive_interval))?;
    setsockopt(stream, sockopt::TcpKeepCount, &liveness.keepalive_count)?;
    let unacknowledged_ms = u32::try_from(liveness.unacknowledged.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &unacknowledged_ms)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn a_socket_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let liveness = Liveness {
            keepalive_idle: Duration::from_millis(300),
            keepalive_interval: Duration::from_secs(4),
            keepalive_count: 7,
            unacknowledged: Duration::from_millis(1234),
        };
        configure(&stream, &liveness).unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepIdle), Ok(1));
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepInterval), Ok(4));
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepCount), Ok(7));
        assert_eq!(getsockopt(&stream, sockopt::TcpUserTimeout), Ok(1234));
    }
}
