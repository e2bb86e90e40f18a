# The image built from source, for those who can pull its base images. `scripts/image` makes the
# same from a binary built on this machine, and pulls nothing.
FROM rust:1-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ libclang-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package meerkat && strip --strip-debug -o /meerkat target/release/meerkat

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends libstdc++6 && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 65532 meerkat \
    && useradd --uid 65532 --gid meerkat --home-dir /var/lib/meerkat --create-home --shell /usr/sbin/nologin meerkat
COPY --from=build /meerkat /usr/local/bin/meerkat
USER 65532:65532
WORKDIR /var/lib/meerkat
EXPOSE 2379 2380
ENTRYPOINT ["/usr/local/bin/meerkat"]
CMD ["help"]
