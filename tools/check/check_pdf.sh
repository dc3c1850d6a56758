#!/usr/bin/env bash
# PDFs in requests. Usage: check_pdf.sh BUILD_DIR
exec "$(dirname "$0")/on_model.sh" "$1" tests/e2e/pdf.py
