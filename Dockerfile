# Targets: cpu (the default, without CUDA libraries), cuda, gateway (the HTTP gateway), and sbom,
# which holds lists of the components of these images
# (docker build --target sbom --output lists .). deploy/README.md describes how to run the images.
#
#   docker build --target cpu -t sluice .
#   docker run -v /path/to/models:/models:ro -p 127.0.0.1:8001:8001 sluice --model NAME=/models/NAME
#
# The daemon's image contains only the tree of deploy/image_tree.sh: no shell and no package
# manager.
# The compiler, the base and the packages come from the archive of one day, and the base is also
# pinned by its digest, so that a commit always gives the same files. SECURITY.md describes how to
# move to a later day.
# To get an image with the same digest as well, use
# --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct), the exporter's option
# rewrite-timestamp=true, and the same VERSION and REVISION.
ARG DEBIAN=bookworm-20260824-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

FROM debian:${DEBIAN} AS packages
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# In comments, the base's list of sources names the archive of the base's own day. The signatures of
# that archive have expired. The package lists are kept because image_tree.sh downloads with them.
# hadolint ignore=DL3009
RUN sed -i '/^URIs:/d; s/^# *http/URIs: http/; s/^Suites/Check-Valid-Until: no\n&/' \
      /etc/apt/sources.list.d/debian.sources && \
    grep -q '^URIs: .*/archive/' /etc/apt/sources.list.d/debian.sources && \
    apt-get update -qq

FROM packages AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /src
COPY tools/packages-build.txt tools/
RUN sed 's/#.*//' tools/packages-build.txt | xargs apt-get install -y -qq --no-install-recommends
ENV SOURCE_DATE_EPOCH=0

FROM build AS build-cpu
COPY . .
RUN cmake --preset release -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF && \
    cmake --build build/release --target sluiced sluice sluice-analysis && \
    deploy/image_tree.sh build/release /tree

# The lists of the components of the image, its sources and the gateway.
FROM build-cpu AS list
# hadolint ignore=DL3008
RUN apt-get install -y -qq --no-install-recommends python3-venv && \
    python3 -m venv /opt/sbom && \
    /opt/sbom/bin/pip install -q --no-cache-dir --only-binary :all: --no-deps \
      -r deploy/requirements-sbom.txt && \
    /opt/sbom/bin/python deploy/make_sbom.py --image /tree --sources --gateway --out /list

FROM scratch AS sbom
COPY --from=list /list /

# The toolkit as Python packages, because NVIDIA publishes no base image of Debian.
FROM build AS build-cuda
COPY tools/requirements-cuda.txt tools/
# hadolint ignore=DL3008
RUN apt-get install -y -qq --no-install-recommends python3-venv && \
    python3 -m venv /cuda && \
    /cuda/bin/pip install -q --no-cache-dir --no-deps -r tools/requirements-cuda.txt && \
    ln -s /cuda/lib/python3*/site-packages/nvidia/cu13 /usr/local/cuda
ENV PATH=/usr/local/cuda/bin:$PATH CMAKE_PREFIX_PATH=/usr/local/cuda
COPY . .
# cuBLASLt is loaded if cuda.dense selects it. The host's container runtime provides the driver.
RUN cmake --preset cuda -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF && \
    cmake --build build/cuda --target sluiced sluice sluice-analysis && \
    deploy/image_tree.sh build/cuda /tree /usr/local/cuda/lib/libcublasLt.so.13

FROM packages AS build-gateway
# hadolint ignore=DL3008
RUN apt-get install -y -qq --no-install-recommends python3-venv
COPY deploy/requirements-gateway.txt /src/
COPY clients/python /src/python
RUN python3 -m venv /opt/gateway && \
    /opt/gateway/bin/pip install -q --no-cache-dir --only-binary :all: --no-deps \
      -r /src/requirements-gateway.txt && \
    /opt/gateway/bin/pip install -q --no-cache-dir --no-deps /src/python && \
    /opt/gateway/bin/pip uninstall -q -y pip

FROM packages AS gateway
# hadolint ignore=DL3008
RUN apt-get install -y -qq --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
COPY --from=build-gateway /opt/gateway /opt/gateway
ENV PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8000 8005
ENTRYPOINT ["/opt/gateway/bin/sluice-gateway"]
CMD ["--daemon", "localhost:8001", "--listen", "0.0.0.0:8000", "--metrics", "0.0.0.0:8005"]
HEALTHCHECK --interval=10s --timeout=5s CMD ["/opt/gateway/bin/python", "-c", \
  "import urllib.request as r; r.urlopen('http://localhost:8000/livez', timeout=4)"]

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
# To reach a daemon at another address, or with TLS, set SLUICE_SERVER or replace the command.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["sluice", "health"]

# The container runtime refuses to start the image on a host whose driver is too old.
FROM image AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_REQUIRE_CUDA="cuda>=13.0"
COPY --from=build-cuda /tree /

FROM image AS cpu
COPY --from=build-cpu /tree /
