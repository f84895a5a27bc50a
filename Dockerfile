# One image, one binary. Built in stages: the last one has the binary and what it links against, nothing else.
FROM rust:1.95-bookworm AS build
# cmake builds zlib-ng for pingora-core.
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --locked --profile dist -p kvasir && cp target/dist/kvasir /kvasir

FROM debian:bookworm-slim
# Runs as nobody, writes nothing: a read-only root filesystem is fine.
COPY --from=build /kvasir /usr/local/bin/kvasir
RUN ln -s kvasir /usr/local/bin/kthena-router
COPY LICENSE /usr/share/doc/kvasir/LICENSE
USER 65534:65534
EXPOSE 8080 9090
ENTRYPOINT ["/usr/local/bin/kvasir"]
CMD ["--help"]
