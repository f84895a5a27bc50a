//! A bare Pingora hop: what the library's own forwarder costs, with nothing of a router in it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use clap::Parser;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

/// Forwards every request to one of the upstreams, in turn.
#[derive(Debug, Parser)]
struct Args {
    /// Where it listens
    #[arg(long)]
    listen: SocketAddr,
    /// Threads that serve
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Where requests go
    #[arg(required = true)]
    upstreams: Vec<SocketAddr>,
}

/// The pass-through.
struct Hop {
    upstreams: Vec<SocketAddr>,
    next: AtomicUsize,
}

#[async_trait]
impl ProxyHttp for Hop {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora_core::Result<Box<HttpPeer>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.upstreams.len();
        Ok(Box::new(HttpPeer::new(self.upstreams[turn], false, String::new())))
    }
}

fn main() {
    let args = Args::parse();
    let configuration = ServerConf { threads: args.threads, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, configuration);
    server.bootstrap();
    let hop = Hop { upstreams: args.upstreams, next: AtomicUsize::new(0) };
    let mut service = http_proxy_service(&server.configuration, hop);
    service.add_tcp(&args.listen.to_string());
    server.add_service(service);
    server.run_forever();
}
