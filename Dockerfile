# Targets: cpu (default; no CUDA libraries) and cuda.
#
#   docker build --target cpu -t sluice .
#   docker run -p 8001:8001 -p 8002:8002 -v /path/to/models:/models:ro sluice --model demo=/models/demo

FROM debian:12-slim AS build-cpu
WORKDIR /src
COPY tools/packages-build.txt tools/
RUN apt-get update -qq && \
    sed 's/#.*//' tools/packages-build.txt | xargs apt-get install -y -qq --no-install-recommends && \
    rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset release -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF && \
    cmake --build build/release --target sluiced sluice && \
    strip build/release/server/sluiced build/release/client/sluice

FROM debian:12-slim AS runtime
# The shared libraries that the two binaries name; see tools/packages-runtime.txt.
COPY tools/packages-runtime.txt /tmp/
RUN apt-get update -qq && \
    sed 's/#.*//' /tmp/packages-runtime.txt | xargs apt-get install -y -qq --no-install-recommends && \
    rm -rf /var/lib/apt/lists/* /tmp/packages-runtime.txt && \
    useradd --system --uid 10001 --no-create-home sluice
COPY config/sluice.yaml /etc/sluice/sluice.yaml
COPY models/demo /models/demo
USER 10001
EXPOSE 8001 8002
ENTRYPOINT ["sluiced"]
CMD ["--model", "demo=/models/demo"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["sluice", "health"]

# cuBLASLt is loaded where cuda.dense asks for it; the driver comes with the host's container runtime.
FROM nvidia/cuda:13.0.0-devel-debian12 AS build-cuda
WORKDIR /src
COPY tools/packages-build.txt tools/
RUN apt-get update -qq && \
    sed 's/#.*//' tools/packages-build.txt | xargs apt-get install -y -qq --no-install-recommends && \
    rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset cuda -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF && \
    cmake --build build/cuda --target sluiced sluice && \
    strip build/cuda/server/sluiced build/cuda/client/sluice

FROM runtime AS cuda
COPY --from=build-cuda /usr/local/cuda/lib64/libcublasLt.so* /usr/lib/
COPY --from=build-cuda /src/build/cuda/server/sluiced /src/build/cuda/client/sluice /usr/local/bin/

FROM runtime AS cpu
COPY --from=build-cpu /src/build/release/server/sluiced /src/build/release/client/sluice /usr/local/bin/
