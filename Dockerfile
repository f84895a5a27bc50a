# One image, one binary for every subcommand. Built in stages: the last one has the binary and the C library it links
# against, no shell and no package manager. It runs as nobody (65532) and writes nothing: a read-only root is fine.
# `make image-check` builds the same stages without a container engine and runs the result.
FROM rust:1.95-bookworm AS build
# cmake builds zlib-ng for pingora-core.
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --locked --profile dist -p kvasir && e2e/image/stage.sh target/dist/kvasir /out

FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="kvasir" \
      org.opencontainers.image.description="KV-aware smart inference router" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/ /
USER 65532:65532
EXPOSE 8080 9090 8443
ENTRYPOINT ["/usr/local/bin/kvasir"]
CMD ["--help"]
