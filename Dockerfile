FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/abs
ENV PATH=/opt/abs/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY app app
COPY compiler compiler
COPY decoding decoding
RUN pip install '.[compile,inference]' --constraint constraints.txt

FROM python:3.11-slim
RUN useradd --system --create-home --home-dir /srv/abs abs
COPY --from=build /opt/abs /opt/abs
USER abs
WORKDIR /srv/abs
ENV PATH=/opt/abs/bin:$PATH PYTHONUNBUFFERED=1 ABS_HOST=0.0.0.0 ABS_PORT=8000
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=2)"]
CMD ["abs", "serve"]
