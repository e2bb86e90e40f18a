# The images built from source, for those who can pull their base images. `scripts/image` makes the
# same from binaries built on this machine, and pulls nothing; chaos/tests/deploy.rs holds the two
# against each other.
#
#   docker build -t meerkat:dev .
#   docker build -t meerkat-chaos:dev --target chaos .
FROM rust:1-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ libclang-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package meerkat --package meerkat-chaos \
    && strip --strip-debug -o /meerkat target/release/meerkat \
    && strip --strip-debug -o /meerkat-chaos target/release/meerkat-chaos

FROM debian:bookworm-slim AS base
RUN apt-get update && apt-get install -y --no-install-recommends libstdc++6 && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 65532 meerkat \
    && useradd --uid 65532 --gid meerkat --home-dir /var/lib/meerkat --create-home --shell /usr/sbin/nologin meerkat
USER 65532:65532
WORKDIR /var/lib/meerkat

# What breaks members on purpose: docker-compose.yml, --profile chaos.
FROM base AS chaos
COPY --from=build /meerkat-chaos /usr/local/bin/meerkat-chaos
ENTRYPOINT ["/usr/local/bin/meerkat-chaos"]
CMD ["help"]

# The product. Last, so that it is what `docker build` makes when it is not told.
FROM base AS meerkat
COPY --from=build /meerkat /usr/local/bin/meerkat
EXPOSE 2378 2379 2380
ENTRYPOINT ["/usr/local/bin/meerkat"]
CMD ["help"]
