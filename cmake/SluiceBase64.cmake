# sluice_sha256_base64(TEXT OUT): the SHA-256 of TEXT in base64, as a Content-Security-Policy names
# what it allows.
function(sluice_sha256_base64 text out)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hex "${text}")
  set(base64 "")
  # Three hexadecimal digits are two of base64; two zeros make 66 digits of the 64.
  foreach(at RANGE 0 63 3)
    string(SUBSTRING "${hex}00" ${at} 3 digits)
    math(EXPR high "0x${digits} / 64")
    math(EXPR low "0x${digits} % 64")
    string(SUBSTRING "${alphabet}" ${high} 1 high)
    string(SUBSTRING "${alphabet}" ${low} 1 low)
    string(APPEND base64 "${high}${low}")
  endforeach()
  # 32 bytes end in one digit of padding.
  string(SUBSTRING "${base64}" 0 43 base64)
  set(${out} "${base64}=" PARENT_SCOPE)
endfunction()
