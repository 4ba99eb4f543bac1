# Sourced by scripts whose first argument is a file or a number: --help says what stands at their top, and no other option is taken for a file.
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
