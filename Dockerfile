# Three images: control-plane (with fedctl, and the bridge), agent, fedctl. `docker build --target agent .`
# With a digest nobody can change it: --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY federation ./federation
COPY estimator ./estimator
COPY migrations ./migrations
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM wheel AS control-plane-packages
COPY deploy/images/control-plane.lock ./
RUN python -m venv /opt/fedsched \
 && /opt/fedsched/bin/pip install --no-cache-dir --require-hashes --no-deps -r control-plane.lock \
 && /opt/fedsched/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl

FROM wheel AS agent-packages
COPY deploy/images/agent.lock ./
RUN python -m venv /opt/fedsched \
 && /opt/fedsched/bin/pip install --no-cache-dir --require-hashes --no-deps -r agent.lock \
 && /opt/fedsched/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl

FROM wheel AS fedctl-packages
COPY deploy/images/fedctl.lock ./
RUN python -m venv /opt/fedsched \
 && /opt/fedsched/bin/pip install --no-cache-dir --require-hashes --no-deps -r fedctl.lock \
 && /opt/fedsched/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl

FROM ${PYTHON_IMAGE} AS runtime
LABEL org.opencontainers.image.title=fedsched \
      org.opencontainers.image.description="The scheduler for fleets of Kubernetes clusters" \
      org.opencontainers.image.licenses=Apache-2.0
ENV PATH=/opt/fedsched/bin:$PATH PYTHONUNBUFFERED=1
# Fresh named volumes take their owner from these folders.
RUN install -d -o 65532 -g 65532 /var/lib/fedsched /authority /trust /serving /join
USER 65532:65532
WORKDIR /var/lib/fedsched

FROM runtime AS fedctl
COPY --from=fedctl-packages /opt/fedsched /opt/fedsched
ENTRYPOINT ["fedctl"]

FROM runtime AS agent
COPY --from=agent-packages /opt/fedsched /opt/fedsched
CMD ["estimator", "run"]

# The last one is what `docker build .` makes.
FROM runtime AS control-plane
COPY --from=control-plane-packages /opt/fedsched /opt/fedsched
CMD ["federation", "serve"]
