# Targets: cpu (default; no CUDA libraries) and cuda. deploy/README.md says how to run the image.
#
#   docker build --target cpu -t sluice .
#   docker run -v /path/to/models:/models:ro -p 127.0.0.1:8001:8001 sluice --model NAME=/models/NAME
#
# The image holds the tree of deploy/image_tree.sh and nothing else: no shell, no package manager.
# Compiler, base and packages are those of one day, so that the same commit gives the same files;
# raise both together for Debian's security updates:
#   --build-arg DEBIAN=bookworm-20250520-slim --build-arg SNAPSHOT=20250520T000000Z
# For an image of the same digest as well: --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct), the
# exporter's option rewrite-timestamp=true, and the same VERSION and REVISION.
ARG DEBIAN=bookworm-20250520-slim

FROM debian:${DEBIAN} AS build
ARG SNAPSHOT=20250520T000000Z
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /src
COPY tools/packages-build.txt tools/
# A snapshot's signatures run out. The lists are kept: image_tree.sh downloads by them.
# hadolint ignore=DL3009
RUN sed -i "s|deb.debian.org/\(debian[a-z-]*\)|snapshot.debian.org/archive/\1/${SNAPSHOT}|; s|^Suites|Check-Valid-Until: no\n&|" \
      /etc/apt/sources.list.d/debian.sources && \
    apt-get update -qq && \
    sed 's/#.*//' tools/packages-build.txt | xargs apt-get install -y -qq --no-install-recommends
ENV SOURCE_DATE_EPOCH=0

FROM build AS build-cpu
COPY . .
RUN cmake --preset release -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF && \
    cmake --build build/release --target sluiced sluice && \
    deploy/image_tree.sh build/release /tree

# NVIDIA publishes no base image of Debian; its packages for Debian are of the version named.
FROM build AS build-cuda
ADD https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb /tmp/
# hadolint ignore=DL3008
RUN apt-get install -y -qq --no-install-recommends ca-certificates /tmp/cuda-keyring_1.1-1_all.deb && \
    apt-get update -qq && \
    apt-get install -y -qq --no-install-recommends cuda-nvcc-13-0 cuda-cudart-dev-13-0 libcublas-dev-13-0
ENV PATH=/usr/local/cuda-13.0/bin:$PATH
COPY . .
# cuBLASLt is taken along if the daemon asks for it. The driver comes with the host's container runtime.
# hadolint ignore=DL4006
RUN cmake --preset cuda -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF && \
    cmake --build build/cuda --target sluiced sluice && \
    ldd build/cuda/server/sluiced | awk '/libcublas/ { print $3 }' | \
    xargs deploy/image_tree.sh build/cuda /tree

FROM scratch AS image
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Sluice" \
      org.opencontainers.image.description="gRPC inference serving in adaptive shape buckets" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/usr/local/bin
USER 10001:10001
EXPOSE 8001 8002
ENTRYPOINT ["sluiced"]
CMD ["--model", "demo=/models/demo"]
# Another address of the daemon, or TLS: SLUICE_SERVER in the environment, or another command.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["sluice", "health"]

FROM image AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /tree /

FROM image AS cpu
COPY --from=build-cpu /tree /
