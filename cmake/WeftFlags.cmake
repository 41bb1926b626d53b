# Compile flags shared by every target. No -march=native: kernels dispatch at run time.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
# Results must not depend on the compiler's freedom to contract a*b+c.
add_compile_options(-ffp-contract=off)
if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
endif()
if(WEFT_COVERAGE)
  add_compile_options(--coverage -O0)
  add_link_options(--coverage)
endif()
if(WEFT_FUZZ)
  # The libraries count coverage too; otherwise the fuzzer sees only its own entry function.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
