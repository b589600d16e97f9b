# sluice_sha256_base64(TEXT OUT) sets OUT to the SHA-256 of TEXT in base64, the form in which a
# Content-Security-Policy names a script or style that it allows.
function(sluice_sha256_base64 text out)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hex "${text}")
  set(base64 "")
  # Three hexadecimal digits make two of base64. Two zeros extend the 64 digits to 66.
  foreach(at RANGE 0 63 3)
    string(SUBSTRING "${hex}00" ${at} 3 digits)
    math(EXPR high "0x${digits} / 64")
    math(EXPR low "0x${digits} % 64")
    string(SUBSTRING "${alphabet}" ${high} 1 high)
    string(SUBSTRING "${alphabet}" ${low} 1 low)
    string(APPEND base64 "${high}${low}")
  endforeach()
  # The base64 of 32 bytes ends in one character of padding.
  string(SUBSTRING "${base64}" 0 43 base64)
  set(${out} "${base64}=" PARENT_SCOPE)
endfunction()
