//! A client that keeps its connection.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use super::PodNumber;
use super::hosts::read_answer;
use crate::client::{get, post};

/// One client.
#[derive(Debug)]
pub struct Line {
    to: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Status.
    pub status: u16,
    /// The pod that answered, and the model that it was asked for; `None` where no pod did.
    pub answer: Option<(PodNumber, String)>,
}

impl Line {
    /// A client of this address; it connects when it asks.
    pub fn new(to: SocketAddr) -> Self {
        Self { to, sender: None }
    }

    /// Asks for one token of a model.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn ask(&mut self, model: &str) -> Result<Told> {
        let body = json!({
            "model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Which pod are you?"}],
        });
        let (status, body) = self.send(post("/v1/chat/completions", body.to_string())?).await?;
        Ok(Told { status, answer: read_answer(&body).filter(|_| status == 200) })
    }

    /// Asks for a page.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn get(&mut self, path: &str) -> Result<(u16, Bytes)> {
        self.send(get(path)?).await
    }

    async fn send(&mut self, request: http::Request<Full<Bytes>>) -> Result<(u16, Bytes)> {
        let mut sender = match self.sender.take() {
            // An idle connection may have been closed by the other side.
            Some(mut open) => match open.ready().await {
                Ok(()) => open,
                Err(_) => connect(self.to).await?,
            },
            None => connect(self.to).await?,
        };
        let response = sender.send_request(request).await.context("no answer")?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.context("the answer breaks off")?.to_bytes();
        self.sender = Some(sender);
        Ok((status, body))
    }
}

async fn connect(to: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(to).await.with_context(|| format!("{to} does not answer"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends when the sender is dropped, and its errors are the sender's too.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
