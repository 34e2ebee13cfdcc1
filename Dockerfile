# One build, two targets. `light` is without PyTorch, for the API and the compile workers. `inference`, the default, has
# it, for inference workers and for the service in one process.
#
#   PYTHON_IMAGE   the base image; a release gives its digest
#   PIP_NO_INDEX   1 installs only from deploy/wheels, which deploy/images.sh fills
#   TORCH_BACKEND  PyTorch's build if deploy/wheels has none: cpu, or cu130 for an NVIDIA GPU
#   FADO           1 adds the regex engine FAdo, which is under the GPL
#
# The stages of `light` come first, because Docker's legacy builder builds all stages before the target.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG PIP_NO_INDEX=""
# A variable of ENV reaches the stages that build on this one; with the legacy builder an ARG does not.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_FIND_LINKS=/src/wheels PIP_NO_INDEX=$PIP_NO_INDEX
WORKDIR /src
# pip stays in /opt/build; the image gets /opt/abs alone.
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/abs
ENV PATH=/opt/build/bin:$PATH
COPY deploy/wheels wheels
COPY locks locks
# Dependencies come before the code, so a change of the code reuses their layers.
RUN pip install --require-hashes --requirement locks/build.txt \
    && pip --python /opt/abs install --require-hashes --requirement locks/light.txt

FROM build AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY compiler compiler
COPY decoding decoding
COPY abs_client abs_client
COPY app app
RUN hatchling build --target wheel --directory /wheel

FROM build AS light-installed
ARG FADO=""
# FAdo declares notebooks, of which its automata need nothing.
RUN if [ -n "$FADO" ]; then pip --python /opt/abs install --no-deps --require-hashes --requirement locks/fado.txt; fi
COPY --from=wheel /wheel /wheel
COPY deploy/strip.sh ./
RUN pip --python /opt/abs install --no-deps /wheel/*.whl && sh strip.sh /opt/abs

FROM ${PYTHON_IMAGE} AS base
# The engine MONA, where the base image is without it; a user without a password; no program that changes its user.
RUN { command -v mona || { apt-get update && apt-get install --yes --no-install-recommends "mona=1.4-*" \
        && rm -rf /var/lib/apt/lists/*; }; } \
    && echo "abs:x:10001:10001::/srv/abs:/usr/sbin/nologin" >> /etc/passwd \
    && install --directory --owner 10001 --group 10001 /srv/abs \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
USER 10001:10001
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

FROM build AS inference-installed
ARG TORCH_BACKEND=cpu
# Hashes cover all but PyTorch, whose builds for CPUs and for GPUs have one version and different hashes. What requires
# PyTorch is installed before it, and so without dependencies; tests/deploy/test_closed_locks.py finds that none is
# absent.
RUN pip --python /opt/abs install --no-deps --require-hashes --requirement locks/inference.txt \
    && if [ -n "$PIP_NO_INDEX" ] || ls wheels/torch-*.whl; then pip --python /opt/abs install --requirement locks/torch.txt; \
    else pip install --require-hashes --requirement locks/uv.txt \
        && uv pip install --python /opt/abs --no-cache --torch-backend "$TORCH_BACKEND" --requirement locks/torch.txt; fi
COPY --from=wheel /wheel /wheel
COPY deploy/strip.sh ./
RUN pip --python /opt/abs install --no-deps /wheel/*.whl && sh strip.sh /opt/abs

FROM base AS inference
COPY --from=inference-installed /opt/abs /opt/abs
