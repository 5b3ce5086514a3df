# One image for every stage, from the lock. Build: docker build -t lmu-scaling .
# Use: docker run --rm -v "$PWD/results:/project/results" -v "$PWD/paper_figures:/project/paper_figures" lmu-scaling
#      (--gpus all for GPUs; what comes after the name goes to snakemake instead of --cores all)
FROM python:3.11-slim-bookworm

# a compiler for the CPU kernels of the LMU; git for the manifests' commit
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ git \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /project

COPY requirements.lock envs/cuda.lock ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock -r cuda.lock

COPY . .

ENTRYPOINT ["snakemake"]
CMD ["--cores", "all"]
