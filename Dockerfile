# One image for the three programs: federation, estimator, fedctl.
# With a digest nobody can change it: --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/fedsched \
 && /opt/fedsched/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY federation ./federation
COPY estimator ./estimator
COPY migrations ./migrations
RUN /opt/fedsched/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/fedsched /opt/fedsched
ENV PATH=/opt/fedsched/bin:$PATH PYTHONUNBUFFERED=1
# Fresh named volumes take their owner from these folders.
RUN install -d -o 65532 -g 65532 /var/lib/fedsched /authority /trust /serving /join
USER 65532:65532
WORKDIR /var/lib/fedsched
CMD ["federation", "serve"]
