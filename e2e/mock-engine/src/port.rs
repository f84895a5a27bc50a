//! A TCP port that stays ours while nobody listens on it.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted, as in most servers.
const ACCEPT_QUEUE: u32 = 1024;

/// A reserved address.
///
/// Between a stop and the next start an engine refuses connections on its port. A second socket, bound but not
/// listening, keeps the port from being given to somebody else meanwhile.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    _holder: TcpSocket,
}

impl Port {
    /// Reserves `address`; port 0 takes a free one.
    pub(crate) fn reserve(address: SocketAddr) -> io::Result<Self> {
        let holder = socket(address)?;
        Ok(Self { address: holder.local_addr()?, _holder: holder })
    }

    /// The address, with its real port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens; fails while another listener is open.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        socket(self.address)?.listen(ACCEPT_QUEUE)
    }
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_reserved_port_refuses_until_it_listens_and_can_listen_again() {
        let port = Port::reserve(([127, 0, 0, 1], 0).into()).expect("free port");
        for _ in 0..3 {
            let refused = TcpStream::connect(port.address()).await.expect_err("nobody listens");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let listener = port.listen().expect("listens");
            let (connected, accepted) = tokio::join!(TcpStream::connect(port.address()), listener.accept());
            connected.expect("connected");
            accepted.expect("accepted");
        }
    }
}
