# Sourced by scripts for machines with GPUs, whose first argument is a file or a number: --help says what stands at their top, and no other option is taken for a file.
case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
  -*)
    echo "$0: no option $1; --help says what there is" >&2
    exit 2
    ;;
esac

# What must be there, before anything is built or written: a row of a run that failed stays in the results.
gpus_there() {
  command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not here: this needs a machine with NVIDIA GPUs" >&2; exit 2; }
}
nccl_home() { # the folder of Python's NCCL, in a command's substitution
  python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || { echo "NCCL is not here: pip install nvidia-nccl-cu13==2.28.9 (PyTorch brings it); where a script takes NCCL_LIB=FILE that does as well" >&2; exit 2; }
}
torchrun_there() {
  command -v torchrun >/dev/null || { echo "torchrun is not here: this needs PyTorch" >&2; exit 2; }
}
