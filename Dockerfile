# One build, three images. `light` is without PyTorch, for the API and the compile workers. `cpu` (the default) and
# `cuda` have it, for inference workers and for the service in one process.
#
# TORCH_CPU and TORCH_CUDA name an index of PyTorch builds, to replace the package index's own builds.

FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
RUN python -m venv /opt/abs
ENV PATH=/opt/abs/bin:$PATH
# Dependencies come before the code, so a change of the code reuses their layers.
COPY locks locks
RUN pip install --no-deps --require-hashes --requirement locks/light.txt

FROM build AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY compiler compiler
COPY decoding decoding
COPY abs_client abs_client
COPY app app
RUN pip wheel --no-deps --wheel-dir /wheel .

FROM build AS light-installed
COPY --from=wheel /wheel /wheel
RUN pip install --no-deps /wheel/*.whl

FROM build AS cpu-installed
ARG TORCH_CPU=""
RUN pip install --no-deps --require-hashes --requirement locks/inference.txt \
    && PIP_EXTRA_INDEX_URL="$TORCH_CPU" pip install --requirement locks/torch.txt
COPY --from=wheel /wheel /wheel
RUN pip install --no-deps /wheel/*.whl

FROM build AS cuda-installed
ARG TORCH_CUDA=""
RUN pip install --no-deps --require-hashes --requirement locks/inference.txt \
    && PIP_EXTRA_INDEX_URL="$TORCH_CUDA" pip install --requirement locks/torch.txt
COPY --from=wheel /wheel /wheel
RUN pip install --no-deps /wheel/*.whl

FROM python:3.11-slim-bookworm AS base
RUN useradd --system --uid 10001 --create-home --home-dir /srv/abs abs
USER 10001
WORKDIR /srv/abs
ENV PATH=/opt/abs/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/srv/abs/.cache/huggingface \
    ABS_HOST=0.0.0.0 ABS_PORT=8000 ABS_METRICS_HOST=0.0.0.0 ABS_LOG_FORMAT=json
EXPOSE 8000
STOPSIGNAL SIGTERM
# The API; a worker answers on its metrics port: python -m app.local.health http://127.0.0.1:9100/ready
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-m", "app.local.health", "http://127.0.0.1:8000/health"]
CMD ["abs", "serve"]

FROM base AS light
COPY --from=light-installed /opt/abs /opt/abs

FROM base AS cuda
COPY --from=cuda-installed /opt/abs /opt/abs

FROM base AS cpu
COPY --from=cpu-installed /opt/abs /opt/abs
