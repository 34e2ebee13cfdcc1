#!/bin/sh
# Removes from an environment what no container runs: strip.sh FOLDER
#
# Tests of packages; transformers' helpers for its own tests, which hold a token of its test hub; and PyTorch's headers,
# build files and protobuf compiler, which serve only to compile extensions.
set -eu
site=$(echo "$1"/lib/python3.*/site-packages)
find "$site" -type d \( -name test -o -name tests \) -prune -exec rm -rf {} +
rm -rf "$site"/torch/include "$site"/torch/share "$site"/torch/bin/protoc*
rm -f "$site"/transformers/testing_utils.py "$site"/transformers/__pycache__/testing_utils.*
