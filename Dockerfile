# relabel for CPUs, from the wheel in dist/ (`make docker`). Labels appear in the mounted folder, as its user's:
#   docker run --rm --user "$(id -u)" --volume "$PWD:/data" relabel run captions.csv
FROM python:3.11-slim
COPY dist/*.whl /tmp/
# The CPU build of torch first, which pip then keeps: 2.3 GB instead of 7.1 GB.
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu
RUN for wheel in /tmp/*.whl; do pip install --no-cache-dir "$wheel[pipeline,cpu,offline,java]"; done && rm /tmp/*.whl
# Converted models are kept there, by any user.
ENV HOME=/tmp
WORKDIR /data
ENTRYPOINT ["relabel"]
