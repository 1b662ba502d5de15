# One image for the three programs: federation, estimator, fedctl.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/fedsched \
 && /opt/fedsched/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY federation ./federation
COPY estimator ./estimator
COPY bridge ./bridge
COPY migrations ./migrations
RUN /opt/fedsched/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /opt/fedsched /opt/fedsched
ENV PATH=/opt/fedsched/bin:$PATH PYTHONUNBUFFERED=1
# Fresh named volumes take their owner from these folders.
RUN install -d -o 65532 -g 65532 /var/lib/fedsched /authority /trust /serving /join
USER 65532:65532
WORKDIR /var/lib/fedsched
CMD ["federation", "serve"]
