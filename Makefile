# The two commands of the README, and what they stand on.

PERFLOSS = target/release/perfloss
PREFIX = /usr/local
DEMO = perfloss-results/demo-$(shell date +%Y-%m-%d-%H%M%S)

.PHONY: demo test build install

## Builds, measures the reported case, prints the verdict, and says where the report page is.
demo: build
	$(PERFLOSS) run cc -t 24 --on ext4,xfs -s 2 --rounds 4 --output $(DEMO)-cc
	$(PERFLOSS) run create_unlink -t 1,2 --on ext4,xfs,btrfs,tmpfs -s 1 --output $(DEMO)

## All tests, on real file systems and the real kernel; needs root.
test:
	tools/setup test
	tools/test

build:
	tools/setup
	cargo build --release --quiet -p perfloss

install: build
	install -m 755 $(PERFLOSS) $(PREFIX)/bin/perfloss
	install -d $(PREFIX)/share/man/man1 $(PREFIX)/share/bash-completion/completions
	$(PERFLOSS) man > $(PREFIX)/share/man/man1/perfloss.1
	for c in run record show compare offcpu lab list doctor; do \
	    $(PERFLOSS) man $$c > $(PREFIX)/share/man/man1/perfloss-$$c.1 || exit 1; done
	$(PERFLOSS) completions bash > $(PREFIX)/share/bash-completion/completions/perfloss
